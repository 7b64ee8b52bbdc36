// What an event loop waits for next. It is rebuilt before every wait, so nothing has to be removed when a descriptor is
// closed. Thread rule: one thread.
#pragma once

#include <poll.h>

#include <functional>
#include <vector>

#include "base/clock.h"

namespace hvd::launcher {

class PollSet {
 public:
  // The next wait() calls `action` after one of `events`, a hang-up or an error.
  void add(int fd, short events, std::function<void()> action);
  void wake_at(TimePoint when);  // at the latest
  void wait();                   // may return without an event; empties the set

 private:
  std::vector<pollfd> wanted_;
  std::vector<std::function<void()>> actions_;
  TimePoint wake_ = kNever;
};

}  // namespace hvd::launcher
