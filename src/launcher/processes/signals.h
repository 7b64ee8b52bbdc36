// Signals and the ends of children, each read from its own descriptor. Reading one does not consume the other, so
// unread events end the next wait. Thread rule: one thread; the signals are blocked (guard.h).
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/processes/poll_set.h"

namespace hvd::launcher {

class Signals {
 public:
  static Result<Signals> create();  // from now on SIGPIPE does nothing

  void add_to(PollSet& set);
  // Stop signals since the last call.
  std::vector<int> take_stop_signals();
  bool take_dump_signal();  // whether one has come since the last call
  // Reaps all children that have ended.
  void reap(const std::function<void(pid_t pid, int status)>& take);

 private:
  Signals(UniqueFd stops, UniqueFd children, UniqueFd dumps)
      : stops_(std::move(stops)), children_(std::move(children)), dumps_(std::move(dumps)) {}

  UniqueFd stops_, children_, dumps_;
};

}  // namespace hvd::launcher
