#!/bin/bash
# For helm test: waits for the workers as the driver does, then has horovodrun examine them.
set -euo pipefail
here=$(dirname "$0")
# shellcheck source=/dev/null
. "$here/settings.sh"
"$here/waitWorkersReady.sh"
exec horovodrun --doctor --hostfile <(grep -v "^$DRIVER " "$here/hostfile")
