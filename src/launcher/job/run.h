// Runs a job: gathers its hosts, starts the workers, and makes sure that they end together.
// Thread rule: one thread, beside the store's own.
#pragma once

#include "launcher/command_line/options.h"

namespace hvd::launcher {

// The exit code: 0 when every worker returned 0; 1 when one failed or a host cannot be used; 128+n after signal n to
// the launcher. An elastic job goes on without workers that fail. The signals of guard.h and SIGCHLD are blocked by the
// caller.
int run_job(const Options& options);

}  // namespace hvd::launcher
