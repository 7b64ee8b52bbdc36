#!/bin/bash
# horovodrun on the nodes of a Slurm job, which it reaches by ssh: sbatch examples/jobs/slurm_horovodrun.sh
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=01:00:00
set -euo pipefail

# Nodes, slots and the number of ranks come from the allocation. A key, an environment and threads are seen to.
horovodrun python train.py
