// Runs a job: gathers its hosts, starts the workers, and makes sure that they end together.
// Thread rule: one thread, besides the store's own.
#pragma once

#include "launcher/command_line/options.h"

namespace hvd::launcher {

// Returns the exit code: 0 if every worker returned 0; 1 if one failed or a host cannot be used; 128+n after signal n
// to the launcher. An elastic job continues without workers that fail. The caller blocks the signals of guard.h and
// SIGCHLD.
int run_job(const Options& options);

}  // namespace hvd::launcher
