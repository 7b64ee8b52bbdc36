// What of a horovodrun command line mpirun and jsrun have to be told. Thread rule: pure functions, but for the names of
// this machine.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/command_line/options.h"
#include "launcher/hosts/assignment.h"
#include "launcher/mpi/mpi_job.h"

namespace hvd {

// Without variables that depend on how the ranks find each other: meet_under_mpi.h. `environment` is horovodrun's own.
Result<MpiJob> make_mpi_job(const Options& options, const std::vector<Slot>& slots, char* const* environment);

// Variables that say what a process is in some job. Those of the surroundings must not reach the ranks of a new one.
bool is_place_variable(std::string_view name);

}  // namespace hvd
