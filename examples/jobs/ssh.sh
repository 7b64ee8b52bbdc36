#!/bin/bash
# Hosts without a scheduler, reached by ssh: examples/jobs/ssh.sh
# The file `hosts` has a line for each host, such as: node1 slots=2
set -euo pipefail

horovodrun --doctor -hostfile hosts # says what is wrong before anything is started
horovodrun -hostfile hosts python train.py
