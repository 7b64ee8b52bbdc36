// epoll and one alarm behind a single descriptor, so that code built on it can be waited for from anywhere
// (level-triggered: it stays readable until everything has been handled). Tags are the caller's, below 2^64 - 1. Thread
// rule: one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace hvd {

class Poller {
 public:
  static Result<Poller> create();

  int descriptor() const { return epoll_.get(); }
  Status add(int fd, uint64_t tag);             // both directions, edge-triggered
  Status watch_readable(int fd, uint64_t tag);  // level-triggered: needed for another poller's descriptor
  void remove(int fd);
  void set_alarm(TimePoint at);  // kNever: none; stays set until changed

  // The tags of pending events; waits for one until `until` (TimePoint::min(): does not wait). May be empty.
  const std::vector<uint64_t>& wait(TimePoint until = TimePoint::min());

 private:
  Poller(UniqueFd epoll, UniqueFd alarm) : epoll_(std::move(epoll)), alarm_(std::move(alarm)) {}

  UniqueFd epoll_, alarm_;
  TimePoint alarm_at_ = kNever;
  std::vector<uint64_t> tags_;
};

// Milliseconds for poll() and epoll_wait(): rounded up, -1 for never.
int milliseconds_until(TimePoint until);

}  // namespace hvd
