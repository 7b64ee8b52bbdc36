// What the user reads at the end of a job that failed. Thread rule: plain values and pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "launcher/workers/failure.h"

namespace hvd::launcher {

struct FailedJob {
  std::string reason = {};                        // why an elastic job could not go on; empty: the cause says it all
  std::optional<Failure> cause = {};              // of what went wrong last; there is one where there is no reason
  std::vector<Aftermath> after = {};              // what became of ranks then
  std::vector<std::string_view> last_lines = {};  // of the cause's stderr
  bool was_silent = false;                        // it is known to have written nothing there
  size_t stopped = 0;                             // ranks that ran when the job was stopped
  size_t hosts = 1;
  TimePoint began;
};

std::string summary_of(const FailedJob& job);

}  // namespace hvd::launcher
