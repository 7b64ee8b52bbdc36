#!/bin/bash
# Slurm starts the ranks itself: sbatch examples/jobs/slurm_srun.sh
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=01:00:00
set -euo pipefail

# Slurm hands out no secret, and processes of several hosts never talk to each other without one.
_HOROVOD_SECRET_KEY=$(openssl rand -hex 32)
export _HOROVOD_SECRET_KEY
export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"

srun python train.py
