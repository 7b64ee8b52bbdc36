// The program that started the ranks of MPICH (mpirun, or srun --mpi=pmi2), as a rank sees it: version 1 of the
// protocol PMI, lines of text over the descriptor that PMI_FD names. MPI uses the same connection, so call this only
// after MPI's last own call. Thread rule: one caller at a time.
#pragma once

#include "base/status.h"

namespace hvd {

// Waits until all ranks have called it, then tells the process manager that this rank has ended as it should.
Status leave_process_manager(int fd);

}  // namespace hvd
