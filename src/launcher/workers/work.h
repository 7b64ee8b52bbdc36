// What the workers of a job run on one of its hosts. Thread rule: pure function of the options and this process.
#pragma once

#include <string>

#include "launcher/command_line/options.h"
#include "launcher/hosts/hosts.h"
#include "launcher/meeting.h"
#include "launcher/workers/host_runner.h"

namespace hvd {

// Where the user is; empty: nowhere that has a name. To be asked early, because directories go away.
std::string current_directory();

// `directory` is where workers on other hosts start. `is_here`: the host is this machine, so that they inherit it, and
// the environment. `local_size` workers share its `cores`.
Work work_on(const Host& host, const Options& options, const Meeting& meeting, const std::string& directory,
             bool is_here, int cores, int local_size);

}  // namespace hvd
