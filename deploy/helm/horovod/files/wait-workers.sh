#!/bin/bash
# Returns when enough workers of the host file can be logged in to; fails, with their names, when time is up.
set -euo pipefail
here=$(dirname "$0")
# shellcheck source=/dev/null
. "$here/settings.sh"
# shellcheck source=deploy/helm/horovod/files/ssh.sh
. "$here/ssh.sh"

take_keys
[ -s "$SSH_DIR/id" ] || fail "no private key at $SSH_KEYS: the workers cannot be reached"
write_client_config no "Port $SSH_PORT"

mapfile -t missing < <(sed -n 's/ slots=.*//p' "$here/hostfile" | grep -vx "$DRIVER" || true)
wanted=${MIN_WORKERS:-${#missing[@]}}
[ "$wanted" -le "${#missing[@]}" ] ||
  fail "driver.minWorkers is $wanted, and there are ${#missing[@]} workers (worker.number)"
allowed=$((${#missing[@]} - wanted))
answer=""
while [ "${#missing[@]}" -gt "$allowed" ]; do
  late=()
  for host in "${missing[@]}"; do
    answer=$(ssh -F "$SSH_DIR/config" -o BatchMode=yes -o ConnectTimeout=2 "$host" true 2>&1 </dev/null) ||
      late+=("$host")
  done
  missing=("${late[@]}")
  [ "${#missing[@]}" -gt "$allowed" ] || break
  [ "$SECONDS" -lt "$WAIT_SECONDS" ] ||
    fail "no answer within $WAIT_SECONDS s from: ${missing[*]} (the last said: ${answer:-nothing})"
  sleep 1
done
say "$wanted workers answer"
