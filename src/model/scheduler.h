// The ranks of a process that srun or mpirun started without horovodrun, from the variables that Open MPI, PMI (MPICH,
// Intel MPI) and Slurm set. HOROVOD_RANK and HOROVOD_SIZE take precedence, then Open MPI, PMI and Slurm: an mpirun
// inside an allocation uses srun to start its own daemons. Thread rule: pure function of the environment and this host.
#pragma once

#include <functional>

#include "base/status.h"
#include "model/config.h"

namespace hvd {

// Fills in ranks, host name, job and started_by of `config`, which already has the values of HOROVOD_*; and the
// rendezvous address if the scheduler provides it. Does nothing if no scheduler is recognised.
Status place_by_scheduler(const std::function<const char*(const char* name)>& lookup, Config& config);

// Whether an MPI launcher started this process. HOROVOD_RANK and HOROVOD_SIZE, which horovodrun sets, mean that none
// did, even if a launcher around horovodrun left its variables. A single task of srun is not counted: it may be a
// shell.
MpiLaunch mpi_launch(const std::function<const char*(const char* name)>& lookup);

// The same, but none if other variables define the rendezvous: HOROVOD_CONTROLLER, an address, or a key for srun. All
// ranks get the same result, because these variables are the same on all of them.
MpiLaunch expected_mpi(const std::function<const char*(const char* name)>& lookup);

}  // namespace hvd
