// Horovod's MPI library. MPI has no common binary interface, so the package contains the library's source, which is
// compiled against the mpi.h of this machine when it is first needed (--build-mpi, --mpi), into the user's cache. If
// several processes need it at once, one compiles and the others wait. Thread rule: starts processes and waits for
// them; uses SIGALRM, so for single-threaded callers only.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "launcher/hosts/allocation.h"
#include "launcher/mpi/mpi_programs.h"

namespace hvd::launcher {

struct Plugin {
  std::string source;  // in the package
  std::string mpicc;
  std::optional<bool> is_open;  // the required kind of compiler (is_open_mpi_kind); empty: any
  std::string path;             // where it is, or will be; the folder depends on MPI, compiler and source
};

// `program`: the command that started horovodrun. `mpirun` may be null if there is only a compiler.
Result<Plugin> find_plugin(const std::string& program, const Mpirun* mpirun, const Lookup& lookup);

bool is_built(const Plugin& plugin);

// Does nothing if it is already built.
Status build(const Plugin& plugin);

}  // namespace hvd::launcher
