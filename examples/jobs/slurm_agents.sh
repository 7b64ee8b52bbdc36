#!/bin/bash
# horovodrun on the nodes of a Slurm job where ssh is not allowed: sbatch examples/jobs/slurm_agents.sh
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=01:00:00
set -euo pipefail

port=$((20000 + SLURM_JOB_ID % 10000))  # another one for each job
key=$(umask 077 && mktemp "$PWD/.key.XXXXXX")
trap 'rm -f "$key"' EXIT
openssl rand -hex 32 >"$key"

# One agent on each node waits for the launcher below and starts the ranks of its node.
srun --ntasks-per-node=1 --ntasks="$SLURM_NNODES" --cpu-bind=none \
  horovodrun --agent --rendezvous "$(hostname):$port" --key-file "$key" &
horovodrun -np "$SLURM_NTASKS" --agents "$SLURM_NNODES" --rendezvous "0.0.0.0:$port" --key-file "$key" python train.py
wait
