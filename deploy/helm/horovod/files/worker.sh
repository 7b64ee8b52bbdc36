#!/bin/bash
# A worker: an ssh server for the driver, until the pod is taken away.
set -euo pipefail
here=$(dirname "$0")
# shellcheck source=/dev/null
. "$here/settings.sh"
# shellcheck source=deploy/helm/horovod/files/ssh.sh
. "$here/ssh.sh"

# shellcheck disable=SC2329  # called by the trap
has_sessions() {  # a login is a child of the server
  local stat line fields
  for stat in /proc/[0-9]*/stat; do
    read -r line 2>/dev/null <"$stat" || continue
    read -ra fields <<<"${line##*) }"  # behind the name, which may hold anything: state, parent
    [ "${fields[1]}" != "$server" ] || return 0
  done
  return 1
}

# discoverHosts.sh does not list a pod that is being deleted, so the ranks here leave at their next commit, and the driver
# logs out. Kubernetes ends the waiting after terminationGracePeriodSeconds.
# shellcheck disable=SC2329
leave() {
  trap '' TERM
  server=${!:-}
  [ -n "$server" ] || exit 0
  say "the pod is taken away; waiting for the driver to log out"
  while has_sessions; do sleep 0.2; done
  kill "$server"
  wait "$server" || true
  exit 0
}

trap leave TERM INT
take_keys
[ -s "$SSH_DIR/authorized_keys" ] || fail "no public key at $SSH_KEYS: nobody could log in"
write_client_config no "Port $SSH_PORT"
write_server_config
/usr/sbin/sshd -D -e -f "$SSH_DIR/sshd_config" &
wait "$!" || true
fail "the ssh server ended"
