#!/bin/bash
# Prepares ssh as these variables ask for it, then becomes the command. "sshd" as the command is the server itself.
#   SSH_SERVER=true         run a server beside the command
#   SSH_SERVER_PORT=12345   its port (default 22, without root 2222)
#   SSH_KEYS=DIRECTORY      mounted keys (default /etc/horovod/ssh)
#   GENERATE_SSH_KEY=true   make a key pair there if there is none
set -euo pipefail

share=${HOROVOD_SHARE:-/usr/local/share/horovod}
# shellcheck source=deploy/docker/image/places.sh
. "$share/places.sh"
# shellcheck source=deploy/helm/horovod/files/ssh.sh
. "$share/ssh.sh"

generate_key() {
  local id=$SSH_KEYS/id_ed25519
  [ ! -e "$id" ] || return 0
  mkdir -p "$SSH_KEYS"
  [ -w "$SSH_KEYS" ] || fail "cannot make a key: $SSH_KEYS is not writable"
  ssh-keygen -q -t ed25519 -N '' -C horovod -f "$id"
}

# Debian's way of starting the server by hand, `/usr/sbin/sshd -p 12345`, needs a key too; none comes with the image.
make_system_host_key() {
  [ "$(id -u)" = 0 ] || return 0
  mkdir -p /run/sshd
  [ -e /etc/ssh/ssh_host_ed25519_key ] ||
    ssh-keygen -q -t ed25519 -N '' -C "$(hostname)" -f /etc/ssh/ssh_host_ed25519_key
}

prepare_server() {
  [ -s "$SSH_DIR/authorized_keys" ] || [ -s "$home_of_user/.ssh/authorized_keys" ] ||
    fail "nobody could log in: mount keys at $SSH_KEYS, or set GENERATE_SSH_KEY=true"
  write_server_config
  touch "$SSH_DIR/serving"  # for the health check
}

[ "${GENERATE_SSH_KEY:-}" != true ] || generate_key
make_system_host_key
take_keys
[ ! -s "$SSH_DIR/id" ] || write_client_config accept-new
if [ "${1:-}" = sshd ] || [ "${SSH_SERVER:-}" = true ]; then prepare_server; fi
server=(/usr/sbin/sshd -e -f "$SSH_DIR/sshd_config")
[ "${1:-}" != sshd ] || exec "${server[@]}" -D "${@:2}"
if [ "${SSH_SERVER:-}" = true ]; then
  "${server[@]}"
  until answers 2>/dev/null; do  # it goes into the background before it listens
    [ "$SECONDS" -lt 30 ] || fail "the ssh server does not answer at port $SSH_PORT"
    sleep 0.05
  done
fi
exec "$@"
