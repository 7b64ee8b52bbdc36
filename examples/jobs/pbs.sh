#!/bin/bash
# horovodrun on the hosts of a PBS job, which it reaches by ssh: qsub examples/jobs/pbs.sh
#PBS -N train
#PBS -l select=2:ncpus=2:mpiprocs=2
#PBS -l walltime=01:00:00
#PBS -j oe
set -euo pipefail
cd "$PBS_O_WORKDIR"

# Hosts, slots and the number of ranks come from PBS_NODEFILE: one rank for each mpiprocs.
horovodrun python train.py
