// The hosts that a batch scheduler allocated to this job, from the environment: Slurm, LSF, PBS, Grid Engine.
// Thread rule: pure function of the environment and the files that it names.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/hosts/hosts.h"

namespace hvd::launcher {

using Lookup = std::function<const char*(const char* name)>;  // of an environment variable

struct Allocation {
  std::string scheduler;  // for messages: "Slurm"
  std::vector<Host> hosts;
};

// Empty if no scheduler is recognised.
Result<std::optional<Allocation>> read_allocation(const Lookup& lookup);

}  // namespace hvd::launcher
