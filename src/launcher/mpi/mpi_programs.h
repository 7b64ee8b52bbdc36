// Finds the programs of the MPI to use: mpirun, its version, and the matching compiler. Thread rule: starts processes
// and waits for them.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "launcher/hosts/allocation.h"
#include "launcher/mpi/flavour.h"

namespace hvd::launcher {

struct Mpirun {
  std::string path;
  // The command name to use. If Open MPI is called by its full path, it puts its own folder first in the ranks' PATH,
  // before the user's Python: right for HOROVOD_MPI_HOME, wrong for an mpirun found in PATH.
  std::string name;
  MpiVersion version;
};

// $HOROVOD_MPIRUN, a name or path; or mpirun of $HOROVOD_MPI_HOME; or the first in PATH, including Debian's names
// mpirun.openmpi and mpirun.mpich. In a process started by an mpirun, one of the same kind.
Result<Mpirun> find_mpirun(const Lookup& lookup);

// The mpicc of $HOROVOD_MPI_HOME; or the one next to `mpirun`, which may be null; or the first in PATH.
Result<std::string> find_mpicc(const Mpirun* mpirun, const Lookup& lookup);

// The packages that provide an mpicc of this kind (is_open_mpi_kind), or of either.
std::string packages_of(std::optional<bool> is_open);

// Which kind (is_open_mpi_kind) of mpirun started this process, if any.
std::optional<bool> kind_of_surroundings(const Lookup& lookup);
// The same, or the likely kind if srun started it: PMIx is for Open MPI, and PMI 2 for MPICH, but either may have been
// built for the other.
std::optional<bool> likely_kind(const Lookup& lookup);

}  // namespace hvd::launcher
