#!/bin/bash
# Is this worker ready? Its ssh server answers.
set -euo pipefail
here=$(dirname "$0")
# shellcheck source=/dev/null
. "$here/settings.sh"
# shellcheck source=deploy/helm/horovod/files/ssh.sh
. "$here/ssh.sh"
answers || fail "no ssh server answers at port $SSH_PORT"
