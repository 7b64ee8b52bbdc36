#!/usr/bin/env bash
# The main job on hosts of your own: waits for secondaries, then trains on them. It has no slot itself.
#   main.sh SHARE [options of horovodrun] COMMAND...          main.sh /mnt/share python src/train.py
# SHARE is a folder that all hosts see; secondaries register there, and the job's key lies there.
# PREEMPTIBLE_PORT is the port of the secondaries' sshd (default: 12345).
set -euo pipefail
if [ $# -lt 2 ]; then
  sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
share=$(mkdir -p "$1/secondaries" && cd "$1" && pwd)
shift
chmod 700 "$share"

if [ ! -f "$share/id_ed25519" ]; then
  rm -f "$share/new_key" "$share/new_key.pub"
  ssh-keygen -q -t ed25519 -N '' -C 'horovod job' -f "$share/new_key"
  mv "$share/new_key" "$share/id_ed25519"
  mv "$share/new_key.pub" "$share/id_ed25519.pub" # last: secondaries wait for it
fi
cat >"$share/ssh_config" <<END
Host *
  IdentityFile "$share/id_ed25519"
  IdentitiesOnly yes
  UserKnownHostsFile "$share/known_hosts"
  StrictHostKeyChecking yes
  UpdateHostKeys no
END

export PREEMPTIBLE_SHARE=$share PREEMPTIBLE_PORT=${PREEMPTIBLE_PORT:-12345}
export HOROVOD_SSH_COMMAND="ssh -F $share/ssh_config"
exec horovodrun --num-proc 2 --min-np 1 --start-timeout 600 --host-discovery-script "$here/discover.sh" \
  -p "$PREEMPTIBLE_PORT" "$@"
