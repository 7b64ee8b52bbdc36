// Runs a job: starts the workers, forwards their output, and sees to it that they end together.
// Thread rule: single-threaded; one event loop over pipes, consoles and signals.
#pragma once

#include <vector>

#include "launcher/assignment.h"
#include "launcher/options.h"

namespace hvd {

// The exit code: 0 when every worker returned 0; 1 when one failed; 128+n after signal n to the launcher.
// The signals of guard.h and SIGCHLD are blocked by the caller.
int run_job(const Options& options, const std::vector<Slot>& slots);

}  // namespace hvd
