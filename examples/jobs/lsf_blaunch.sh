#!/bin/bash
# horovodrun on the hosts of an LSF job where ssh is not allowed: bsub <examples/jobs/lsf_blaunch.sh
#BSUB -J train
#BSUB -n 4
#BSUB -R "span[ptile=2]"
#BSUB -W 1:00
#BSUB -o train.%J.out
set -euo pipefail

port=$((20000 + LSB_JOBID % 10000))  # another one for each job
key=$(umask 077 && mktemp "$PWD/.key.XXXXXX")
trap 'rm -f "$key"' EXIT
openssl rand -hex 32 >"$key"

# One agent on each host waits for the launcher below and starts the ranks of its host.
mapfile -t hosts < <(sort -u "$LSB_DJOB_HOSTFILE")
for host in "${hosts[@]}"; do
  blaunch "$host" "$(command -v horovodrun)" --agent --rendezvous "$(hostname):$port" --key-file "$key" &
done
horovodrun -np "$(wc -l <"$LSB_DJOB_HOSTFILE")" --agents "${#hosts[@]}" --rendezvous "0.0.0.0:$port" --key-file "$key" \
  python train.py
wait
