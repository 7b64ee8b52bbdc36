// What an event loop waits for next. It is collected anew before every wait, so that nothing has to be taken back when
// a descriptor goes away. Thread rule: one thread.
#pragma once

#include <poll.h>

#include <functional>
#include <vector>

#include "base/clock.h"

namespace hvd::launcher {

class PollSet {
 public:
  // `action` is called by the next wait() if one of `events`, an end or an error has come.
  void add(int fd, short events, std::function<void()> action);
  void wake_at(TimePoint when);  // at the latest
  void wait();                   // may return without anything having happened; empties the set

 private:
  std::vector<pollfd> wanted_;
  std::vector<std::function<void()>> actions_;
  TimePoint wake_ = kNever;
};

}  // namespace hvd::launcher
