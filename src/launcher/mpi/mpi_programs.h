// Finds the programs of the MPI that is to be used: mpirun, which says what it is, and the compiler that belongs to it.
// Thread rule: starts processes and waits for them.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "launcher/hosts/allocation.h"
#include "launcher/mpi/flavour.h"

namespace hvd::launcher {

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

// The packages that have an mpicc of this kind (is_open_mpi_kind), or of either.
std::string packages_of(std::optional<bool> is_open);

// Which kind (is_open_mpi_kind) started this process, if the mpirun of one did.
std::optional<bool> kind_of_surroundings(const Lookup& lookup);
// The same, or which kind srun is most likely to have started it for: PMIx is for Open MPI, and PMI 2 for MPICH, but
// either may have been built for the other.
std::optional<bool> likely_kind(const Lookup& lookup);

}  // namespace hvd::launcher
