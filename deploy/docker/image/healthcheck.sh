#!/bin/bash
# Healthy: the server answers, where there is one; otherwise Horovod's program runs.
set -euo pipefail

SSH_PORT=${SSH_SERVER_PORT:-$([ "$(id -u)" = 0 ] && echo 22 || echo 2222)}
# shellcheck source=deploy/helm/horovod/files/ssh.sh
. "${HOROVOD_SHARE:-/usr/local/share/horovod}/ssh.sh"
if [ -e "/tmp/horovod-ssh-$(id -u)/serving" ]; then
  answers || fail "no ssh server answers at port $SSH_PORT"
else
  horovodrun --version >/dev/null
fi
