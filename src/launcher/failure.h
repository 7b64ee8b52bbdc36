// Why a job failed: which of the things that went wrong was the cause, and how to tell the user.
// Thread rule: plain values and pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "launcher/workers/host_runner.h"

namespace hvd {

struct Failure {
  // In the order of how likely each is the cause of the others.
  enum class Kind { host_stuck, exit, signal, not_started, host_lost };
  Kind kind = Kind::exit;
  std::string who = {};  // "worker 3": where it is not simply the rank
  std::string host;
  int rank = -1;  // not of hosts
  pid_t pid = -1;
  Ended ended;         // of exit and signal
  std::string reason;  // of the others
  TimePoint when;
};

// The cause is not always what is heard of first: when a process is killed or a host is lost, the other ranks fail for
// that and say so at once. `failures` in the order in which they were heard of; not empty.
const Failure& find_cause(const std::vector<Failure>& failures);

// "rank 1 on hostb failed: pid 4711, exit code 3, 12.3 s after the start"
std::string describe(const Failure& failure, TimePoint began);

// What to do about it, for causes that are known; may be empty. `lines` are the last ones of the rank's stderr.
std::string hint_for(const Failure& failure, const std::vector<std::string_view>& lines);

}  // namespace hvd
