// Runs a job: reaches its hosts, starts the workers, and makes sure that they end together.
// Thread rule: one thread, beside the store's own.
#pragma once

#include <vector>

#include "launcher/command_line/options.h"
#include "launcher/hosts/hosts.h"

namespace hvd::launcher {

// `slots` is empty when agents bring the hosts, and in elastic jobs. The exit code: 0 when every worker returned 0; 1
// when one failed or a host cannot be used; 128+n after signal n to the launcher. The signals of guard.h and SIGCHLD
// are blocked by the caller.
int run_job(const Options& options, const std::vector<Slot>& slots);

}  // namespace hvd::launcher
