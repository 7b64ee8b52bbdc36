#!/bin/bash
# Healthy: the server answers, where there is one; otherwise Horovod's program runs.
set -euo pipefail

share=${HOROVOD_SHARE:-/usr/local/share/horovod}
# shellcheck source=deploy/docker/image/places.sh
. "$share/places.sh"
# shellcheck source=deploy/helm/horovod/files/ssh.sh
. "$share/ssh.sh"
if [ -e "$SSH_DIR/serving" ]; then
  answers || fail "no ssh server answers at port $SSH_PORT"
else
  horovodrun --version >/dev/null
fi
