// Slurm's short forms: "node[01-03,7],login" for names, "2(x3),1" for numbers. Both the launcher, for an allocation,
// and the engine, for a process that srun started, read them. Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd {

Result<std::vector<std::string>> expand_nodelist(std::string_view text);
Result<std::vector<int>> expand_counts(std::string_view text);

}  // namespace hvd
