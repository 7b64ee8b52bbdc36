// The text for the user after a job has failed. Thread rule: plain values and pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "launcher/workers/failure.h"

namespace hvd::launcher {

struct FailedJob {
  std::string reason = {};                        // why an elastic job could not continue; empty: the cause explains it
  std::string dump = {};                          // where to read what the ranks did; empty: nowhere
  std::optional<Failure> cause = {};              // of the last failure; always set if there is no reason
  std::vector<Aftermath> after = {};              // what happened to other ranks then
  std::vector<std::string_view> last_lines = {};  // of the stderr of the cause
  bool was_silent = false;                        // it wrote nothing to stderr
  size_t stopped = 0;                             // ranks that were running when the job was stopped
  size_t hosts = 1;
  TimePoint began;
};

std::string summary_of(const FailedJob& job);

}  // namespace hvd::launcher
