// Runs a program and captures its output. Thread rule: starts a process and waits for it; SIGCHLD is not used.
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

// An error if it cannot be run, or takes longer than `patience` and is killed. Its stdin is empty; the first megabytes
// of its output are kept; processes left in its process group are killed.
Result<Captured> capture(std::vector<std::string> command, Duration patience);

// All its output on stdout, or nothing if it fails or takes too long.
std::string output_of(std::vector<std::string> command, Duration patience);

}  // namespace hvd::launcher
