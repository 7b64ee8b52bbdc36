// Signals and the ends of children, read from a descriptor. Thread rule: one thread; the signals are blocked (guard.h).
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/workers/poll_set.h"

namespace hvd {

class Signals {
 public:
  static Result<Signals> create();

  void add_to(PollSet& set);
  // Those that ask us to stop, in order, since the last call.
  std::vector<int> take_stop_signals();
  // Reaps all children that have ended.
  void reap(const std::function<void(pid_t pid, int status)>& take);

 private:
  explicit Signals(UniqueFd fd) : fd_(std::move(fd)) {}
  void read();

  UniqueFd fd_;
  std::vector<int> stop_signals_;
  bool children_ = false;
};

}  // namespace hvd
