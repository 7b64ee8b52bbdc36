// Puts an elastic job together and runs it. Thread rule: one thread, beside the store's own.
#pragma once

#include "launcher/command_line/options.h"
#include "launcher/processes/signals.h"

namespace hvd::launcher {

// The exit code, as of run_job() (run.h).
int run_elastic_job(const Options& options, Signals& signals);

}  // namespace hvd::launcher
