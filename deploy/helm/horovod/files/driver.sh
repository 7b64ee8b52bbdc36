#!/bin/bash
# The driver: runs command.sh, which has driver.args, or sleeps if there are none.
set -euo pipefail
here=$(dirname "$0")
# shellcheck source=/dev/null
. "$here/settings.sh"
# shellcheck source=deploy/helm/horovod/files/ssh.sh
. "$here/ssh.sh"

# The first process of a container gets no signal that it does not ask for; what is to end is the command.
signalled="" command=""
stop() {
  signalled=yes
  # Its group; or itself, as long as it has none.
  [ -z "$command" ] || kill -TERM -- "-$command" 2>/dev/null || kill -TERM "$command" 2>/dev/null || true
}
trap stop TERM INT

take_keys
[ -s "$SSH_DIR/id" ] || fail "no private key at $SSH_KEYS: the workers cannot be reached"
write_client_config no "Port $SSH_PORT"
write_server_config
/usr/sbin/sshd -D -e -o LogLevel=ERROR -f "$SSH_DIR/sshd_config" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT

[ -z "$signalled" ] || exit 143
# In a group of its own: the shell of the command does not pass signals on.
if [ -s "$here/command.sh" ]; then
  setsid bash "$here/command.sh" &
else
  setsid sleep infinity &
fi
command=$!
[ -z "$signalled" ] || stop
code=0
wait "$command" || code=$?
[ -n "$signalled" ] || exit "$code"
# The signal may have ended the waiting, and not yet the command. Its shell may be gone before what it has started.
ended=0
wait "$command" 2>/dev/null || ended=$?
[ "$ended" -eq 127 ] || code=$ended  # 127: it was the command that ended the waiting
while kill -0 -- "-$command" 2>/dev/null; do sleep 0.1; done
exit "$code"
