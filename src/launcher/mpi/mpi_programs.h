// Finds the programs of the MPI that is to be used: mpirun, which says what it is, and the compiler that belongs to it.
// Thread rule: starts processes and waits for them.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "launcher/hosts/allocation.h"
#include "launcher/mpi/flavour.h"

namespace hvd {

struct Mpirun {
  std::string path;
  // What it is told to be called. Open MPI that is called by a full path puts its own folder first in the ranks' PATH,
  // before that of the user's Python: right for HOROVOD_MPI_HOME, wrong for what was found in PATH.
  std::string name;
  MpiVersion version;
};

// $HOROVOD_MPIRUN, a name or path; or mpirun of $HOROVOD_MPI_HOME; or the first in PATH, also under Debian's names
// mpirun.openmpi and mpirun.mpich. In a process that some mpirun has started, one of the same kind.
Result<Mpirun> find_mpirun(const Lookup& lookup);

// The mpicc of $HOROVOD_MPI_HOME; or the one beside `mpirun`, which may be null; or the first in PATH.
Result<std::string> find_mpicc(const Mpirun* mpirun, const Lookup& lookup);

// Which kind (is_open_mpi_kind) started this process, if one did.
std::optional<bool> kind_of_surroundings(const Lookup& lookup);

}  // namespace hvd
