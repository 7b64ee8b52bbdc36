// --doctor: can these hosts run a job together? One probe runs on each host (probe.h), as a job of one process per host
// by the means of every job: ssh or agents, crews, the store. What they find is judged (findings.h) and shown
// (report.h). Thread rule: one thread, beside the store's own.
#pragma once

#include <string>

#include "launcher/command_line/options.h"

namespace hvd {

// `program` is how horovodrun was called (argv[0]). The exit code: 0 when nothing failed, 1 otherwise, 128+n after
// signal n. The signals of guard.h and SIGCHLD are blocked by the caller.
int run_doctor(const Options& options, const std::string& program);

}  // namespace hvd
