# shellcheck shell=bash disable=SC2034
# The paths of ssh files for the entry point and the health check, as ssh.sh expects them, from the container's
# variables.
home_of_user=$(getent passwd "$(id -u)" | cut -d : -f 6)
SSH_KEYS=${SSH_KEYS:-/etc/horovod/ssh}
if [ "$(id -u)" = 0 ]; then
  SSH_DIR=/run/horovod-ssh
  SSH_PORT=${SSH_SERVER_PORT:-22}
else
  SSH_DIR=$home_of_user/.horovod-ssh
  SSH_PORT=${SSH_SERVER_PORT:-2222}
fi
