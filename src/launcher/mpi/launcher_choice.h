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
  std::string jsrun;  // path of jsrun
  std::vector<std::string> warnings;
  bool is_built_in() const { return !mpirun && jsrun.empty(); }
};

// The launcher requested with --gloo, --mpi or --jsrun; an error if it is not installed. By default the built-in one,
// unless there are arguments for mpirun and an mpirun. Elastic jobs and agents always use the built-in launcher.
Result<LauncherChoice> choose_launcher(const Options& options, const Lookup& lookup);

}  // namespace hvd::launcher
