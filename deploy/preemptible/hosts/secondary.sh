#!/usr/bin/env bash
# A secondary on a host of your own: offers its slots to the main job until SIGTERM or Ctrl-C, before, while or after others do.
#   secondary.sh SHARE [SLOTS]                                secondary.sh /mnt/share 4
# SLOTS is the number of workers here (default: 1). On SIGTERM, a node's notice, it takes its name off the list, lets the
# workers leave at their next commit, for at most PREEMPTIBLE_GRACE seconds (default: 30), and ends.
# PREEMPTIBLE_NAME is the name under which the main job reaches this host (default: its host name).
set -euo pipefail
if [ $# -lt 1 ]; then
  sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
share=$1 slots=${2:-1}
name=${PREEMPTIBLE_NAME:-$(hostname)} port=${PREEMPTIBLE_PORT:-12345} grace=${PREEMPTIBLE_GRACE:-30}
entry=$share/secondaries/$name
own=$(mktemp -d)
sshd=0 asked=""

# shellcheck disable=SC2329  # called by a trap
sessions() { ps -o pid= --ppid "$sshd"; }
# shellcheck disable=SC2329
leave() {
  rm -f "$entry"
  # A session ends by itself when the main job lets this host go.
  for ((tenths = 0; tenths < grace * 10; ++tenths)); do
    if [ -z "$asked" ] || [ "$sshd" = 0 ] || ! sessions >/dev/null; then break; fi
    sleep 0.1
  done
  # shellcheck disable=SC2046
  [ "$sshd" = 0 ] || kill $(sessions) "$sshd" 2>/dev/null || true
  rm -rf "$own"
}
trap leave EXIT
trap 'asked=yes; exit 0' TERM INT

echo "waiting for the main job's key in $share"
until [ -f "$share/id_ed25519.pub" ]; do sleep 0.5; done
ssh-keygen -q -t ed25519 -N '' -C "$name" -f "$own/host_key"
cp "$share/id_ed25519.pub" "$own/authorized_keys"
cat >"$own/sshd_config" <<END
Port $port
HostKey $own/host_key
PidFile none
AuthorizedKeysFile $own/authorized_keys
# The folder is this user's alone; the check would complain about /tmp above it.
StrictModes no
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
MaxStartups 200:30:400
MaxSessions 200
END
[ "$(id -u)" != 0 ] || mkdir -p /run/sshd
"$(command -v sshd || echo /usr/sbin/sshd)" -D -f "$own/sshd_config" &
sshd=$!
until ssh-keyscan -p "$port" 127.0.0.1 2>/dev/null | grep -q .; do
  kill -0 "$sshd" 2>/dev/null || { echo "sshd did not start on port $port" >&2 && exit 1; }
  sleep 0.1
done

# First line: for the list of hosts; second: for known_hosts. Renamed into place, so that no reader sees half of it.
{
  echo "$name:$slots"
  echo "[$name]:$port $(cut -d' ' -f1,2 "$own/host_key.pub")"
} >"$own/entry"
cp "$own/entry" "$share/secondaries/.$name.new"
mv "$share/secondaries/.$name.new" "$entry"
echo "$name offers $slots slots"

# The entry is kept fresh for as long as this host lives: one that lost its power is not listed for long.
while kill -0 "$sshd" 2>/dev/null; do
  touch --no-create "$entry"
  sleep 1 &
  wait $! || true
done
echo "sshd has ended" >&2
exit 1
