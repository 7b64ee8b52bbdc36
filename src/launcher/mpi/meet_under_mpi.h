// How ranks that mpirun starts find each other: through MPI with Horovod's MPI library, or else by variables.
// Thread rule: as plugin.h.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/command_line/options.h"
#include "launcher/mpi/mpi_job.h"
#include "launcher/mpi/mpi_programs.h"

namespace hvd::launcher {

struct MeetingUnderMpi {
  Variables variables;             // of the ranks; may hold secrets
  std::vector<std::string> notes;  // for the user
};

// Builds the library if it is wanted and not built yet; with `dry_run` only returns where it would be. Sets
// HOROVOD_CONTROLLER and HOROVOD_CPU_OPERATIONS to mpi, unless the user has set them. An error if the user has
// requested mpi by name and the library cannot be built, or if the ranks could not find each other without it.
Result<MeetingUnderMpi> meet_under_mpi(const Options& options, const MpiJob& job, const Mpirun* mpirun,
                                       const std::string& program, const Lookup& lookup, bool dry_run);

}  // namespace hvd::launcher
