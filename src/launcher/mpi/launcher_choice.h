// Which program starts the ranks: horovodrun itself, mpirun or jsrun. Thread rule: starts processes and waits for them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/command_line/options.h"
#include "launcher/mpi/mpi_programs.h"

namespace hvd::launcher {

struct LauncherChoice {
  std::optional<Mpirun> mpirun;
  std::string jsrun;  // its path
  std::vector<std::string> warnings;
  bool is_built_in() const { return !mpirun && jsrun.empty(); }
};

// What is asked for with --gloo, --mpi or --jsrun; an error when it is not there. Without any of them: the built-in
// one, unless there are arguments for mpirun and an mpirun. Elastic jobs, and agents, are always the built-in
// launcher's.
Result<LauncherChoice> choose_launcher(const Options& options, const Lookup& lookup);

}  // namespace hvd::launcher
