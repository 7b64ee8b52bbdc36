#!/usr/bin/env bash
# Prints the secondaries of main.sh that are alive, one host:slots a line, and has ssh know their host keys.
# An entry that was not touched for PREEMPTIBLE_SILENCE seconds (default: 15) is of a host that is gone.
set -euo pipefail
share=${PREEMPTIBLE_SHARE:?is set by main.sh}
silence=${PREEMPTIBLE_SILENCE:-15}
touch "$share/now" # the share's own clock
now=$(stat -c %Y "$share/now")
new=$share/known_hosts.new
: >"$new"
for entry in "$share"/secondaries/*; do
  touched=$(stat -c %Y "$entry" 2>/dev/null) || continue # it left just now, or there is none
  [ $((now - touched)) -le "$silence" ] || continue
  { read -r host && read -r key; } <"$entry" || continue
  echo "$host"
  echo "$key" >>"$new"
done
mv "$new" "$share/known_hosts"
