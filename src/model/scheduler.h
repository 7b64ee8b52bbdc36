// The place of a process that srun or mpirun started without horovodrun, from the variables that Open MPI, PMI (MPICH,
// Intel MPI) and Slurm set. HOROVOD_RANK and HOROVOD_SIZE win over all of them, then come Open MPI, PMI and Slurm: an
// mpirun inside an allocation uses srun to start its own daemons.
// Thread rule: pure function of the environment and this host.
#pragma once

#include <functional>

#include "base/status.h"
#include "model/config.h"

namespace hvd {

// Fills in placement, host name, job and started_by of `config`, which has what HOROVOD_* say; and where to meet, if
// the scheduler tells. Does nothing when no scheduler is recognised.
Status place_by_scheduler(const std::function<const char*(const char* name)>& lookup, Config& config);

// Whether a launcher of MPI started this process. HOROVOD_RANK and HOROVOD_SIZE, which horovodrun sets, say that none
// did, whatever a launcher around horovodrun has left behind. A single task of srun is not counted: it may be a shell.
MpiLaunch mpi_launch(const std::function<const char*(const char* name)>& lookup);

// The same, but none where other variables say how the ranks meet: HOROVOD_CONTROLLER, an address, or a key for srun.
// All ranks come to the same answer, because it follows from variables that are the same for all of them.
MpiLaunch expected_mpi(const std::function<const char*(const char* name)>& lookup);

}  // namespace hvd
