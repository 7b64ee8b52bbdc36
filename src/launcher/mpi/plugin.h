// Horovod's MPI library. MPI has no common binary interface, so the package has the library's source, and it is
// compiled against the mpi.h of this machine when it is first wanted (--build-mpi, --mpi), into the user's cache. Many
// processes may ask at once: one compiles, the others wait for it. Thread rule: starts processes and waits for them;
// uses SIGALRM, so for single-threaded callers only.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "launcher/hosts/allocation.h"
#include "launcher/mpi/mpi_programs.h"

namespace hvd::launcher {

struct Plugin {
  std::string source;  // of the package
  std::string mpicc;
  std::optional<bool> is_open;  // of which kind (is_open_mpi_kind) the compiler has to be; nothing: of any
  std::string path;             // where it is, or will be; the folder says for which MPI, compiler and source
};

// `program` is how horovodrun was called. `mpirun` may be null, where there is only a compiler.
Result<Plugin> find_plugin(const std::string& program, const Mpirun* mpirun, const Lookup& lookup);

bool is_built(const Plugin& plugin);

// Nothing to do if it is built already.
Status build(const Plugin& plugin);

}  // namespace hvd::launcher
