// Running a program for what it says. Thread rule: starts a process and waits for it; SIGCHLD is not used.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/processes/process.h"

namespace hvd::launcher {

struct Captured {
  Ending ending;
  std::string out, err;
};

// An error when it cannot be run, or takes longer than `patience` and is killed. Its stdin is empty; of what it writes
// the first megabytes are kept; what it leaves running in its process group is killed.
Result<Captured> capture(std::vector<std::string> command, Duration patience);

// All that it writes to stdout, or nothing when it fails or takes too long.
std::string output_of(std::vector<std::string> command, Duration patience);

}  // namespace hvd::launcher
