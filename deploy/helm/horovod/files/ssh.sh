# shellcheck shell=bash
# How containers reach each other by ssh. Sourced by the entry point of the images and by the scripts of the pods, which set
# SSH_KEYS   directory of keys, as a secret or a volume is mounted; its files are recognised by name and content:
#              server-key and server-key-pub: the key that servers prove themselves with, and what clients expect;
# *.pub, *-pub, authorized_keys: who may log in; files with a private key: the clients' keys
#   SSH_DIR    directory of our own for all that is made of them
#   SSH_PORT   port of the server

say() { echo "$(basename "$0"): $*"; }
fail() {
  say "$@" >&2
  exit 1
}

# A key as ssh takes it. On the way through values files, secrets and other systems lines are indented, get carriage returns
# or lose the last newline.
clean_key() { { tr '\r' '\n' <"$1" && echo; } | sed -e 's/^[[:space:]]*//' -e 's/[[:space:]]*$//' -e '/^$/d'; }

# $1: a private key, $2: where its copy goes, unless ssh cannot use it
copy_private_key() {
  local reason
  clean_key "$1" >"$2.new"
  if reason=$(ssh-keygen -y -P '' -f "$2.new" 2>&1 >/dev/null); then
    mv "$2.new" "$2"
  else
    rm "$2.new"
    say "ssh cannot use the private key $1; is it whole, and without a passphrase? ${reason##*$'\n'}" >&2
  fi
}

# Keys are copied: ssh refuses those that others may read, which is how volumes often show them.
take_keys() (
  umask 077
  mkdir -p "$SSH_DIR"
  : >"$SSH_DIR/authorized_keys"
  rm -f "$SSH_DIR/id" "$SSH_DIR/server_key" "$SSH_DIR/known_hosts"
  for file in "$SSH_KEYS"/*; do
    [ -f "$file" ] || continue
    name=$(basename "$file")
    case $name in
      server-key) copy_private_key "$file" "$SSH_DIR/server_key" ;;
      server-key-pub) printf '* %s\n' "$(clean_key "$file" | cut -d ' ' -f 1,2)" >"$SSH_DIR/known_hosts" ;;
      *.pub | *-pub | authorized_keys) clean_key "$file" >>"$SSH_DIR/authorized_keys" ;;
      *) ! grep -q 'PRIVATE KEY' "$file" || copy_private_key "$file" "$SSH_DIR/id" ;;
    esac
  done
)

# $1: what is known of the servers' keys if there is no server-key-pub ("accept-new", or "no" for pods, which are made anew
# under the same names); further arguments: lines of our own.
write_client_config() {
  local checking=$1
  shift
  {
    echo "Host *"
    [ ! -s "$SSH_DIR/id" ] || printf '  IdentityFile %s\n' "$SSH_DIR/id"
    if [ -s "$SSH_DIR/known_hosts" ]; then
      printf '  UserKnownHostsFile %s\n  StrictHostKeyChecking yes\n' "$SSH_DIR/known_hosts"
    else
      printf '  StrictHostKeyChecking %s\n' "$checking"
      [ "$checking" != no ] || echo "  UserKnownHostsFile /dev/null"
    fi
    printf '  %s\n' "LogLevel ERROR" "$@"
  } >"$SSH_DIR/config"
  include_client_config
}

# For people and programs that call plain ssh, which looks where the password file says that home is. A home that cannot be
# written to is no mistake: horovodrun has HOROVOD_SSH_COMMAND.
include_client_config() (
  umask 077
  line="Include $SSH_DIR/config"
  home=$(getent passwd "$(id -u)" | cut -d : -f 6)
  { [ -n "$home" ] && mkdir -p "$home/.ssh"; } 2>/dev/null || exit 0
  [ ! -f "$home/.ssh/config" ] || ! grep -qxF "$line" "$home/.ssh/config" || exit 0
  { printf '%s\n' "$line" "$(cat "$home/.ssh/config" 2>/dev/null || true)" >"$SSH_DIR/config.new" &&
    cp "$SSH_DIR/config.new" "$home/.ssh/config"; } 2>/dev/null || true
)

# Nothing of the image's own server configuration counts, so that a port or a key of ours always does.
write_server_config() {
  local sshd=/usr/sbin/sshd
  [ -x "$sshd" ] || fail "there is no $sshd in this image: install openssh-server"
  [ -s "$SSH_DIR/server_key" ] || ssh-keygen -q -t ed25519 -N '' -C "$(hostname)" -f "$SSH_DIR/server_key"
  if [ "$(id -u)" = 0 ]; then
    (umask 022 && mkdir -p /run/sshd)
  elif [ "$SSH_PORT" -lt 1024 ]; then
    fail "port $SSH_PORT needs root: choose an ssh port from 1024 on"
  fi
  cat >"$SSH_DIR/sshd_config" <<SETTINGS
Port $SSH_PORT
HostKey $SSH_DIR/server_key
AuthorizedKeysFile $SSH_DIR/authorized_keys .ssh/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
UseDNS no
PidFile none
PrintMotd no
X11Forwarding no
MaxStartups 200:30:400
MaxSessions 200
SetEnv PATH="$PATH"
Subsystem sftp internal-sftp
SETTINGS
  "$sshd" -t -f "$SSH_DIR/sshd_config" || fail "sshd does not take its settings, $SSH_DIR/sshd_config"
}

# Does a server answer here? Its greeting is enough: a login would need a key that servers do not have.
answers() {
  local greeting
  exec 3<>"/dev/tcp/127.0.0.1/$SSH_PORT" || return 1
  read -r -t 5 greeting <&3 || return 1
  exec 3>&-
  [[ $greeting == SSH-* ]]
}
