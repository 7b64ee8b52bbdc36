// The program that started the ranks of MPICH (mpirun, or srun --mpi=pmi2), as used by a rank: version 1 of the PMI
// protocol, lines of text over the descriptor in PMI_FD. MPI uses the same connection, so call this only after MPI's
// last call. Thread rule: one caller at a time.
#pragma once

#include "base/status.h"

namespace hvd {

// Waits until all ranks have called it, then reports to the process manager that this rank has ended normally.
Status leave_process_manager(int fd);

}  // namespace hvd
