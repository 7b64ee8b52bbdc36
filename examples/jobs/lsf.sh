#!/bin/bash
# horovodrun on the hosts of an LSF job, which it reaches by ssh: bsub <examples/jobs/lsf.sh
#BSUB -J train
#BSUB -n 4
#BSUB -R "span[ptile=2]"
#BSUB -W 1:00
#BSUB -o train.%J.out
set -euo pipefail

# Hosts, slots and the number of ranks come from LSF: one rank for each slot.
horovodrun python train.py
