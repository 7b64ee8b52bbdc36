// Jobs whose ranks mpirun or jsrun start. horovodrun builds their command, makes sure that no process is left, and
// names the rank that failed; output and exit code are those of mpirun. Thread rule: one thread; run_mpi_job forks.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/command_line/options.h"
#include "launcher/hosts/hosts.h"
#include "launcher/mpi/launcher_choice.h"

namespace hvd::launcher {

// `program`: the command that started horovodrun. Returns the exit code.
int run_mpi_job(const Options& options, const std::vector<Slot>& slots, const LauncherChoice& choice,
                const std::string& program);

// --dry-run: the job as JSON (`job`), with the command of mpirun or jsrun. Contains no secrets.
Result<std::string> describe_mpi_job(const Options& options, const std::vector<Slot>& slots,
                                     const LauncherChoice& choice, const std::string& program, const std::string& job);

// --build-mpi: returns the exit code.
int build_mpi(const std::string& program);

}  // namespace hvd::launcher
