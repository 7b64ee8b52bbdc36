// Where a rank sleeps: an epoll set with its bell, a timer, and the sockets that close when a peer dies. Thread rule:
// any thread may wait; the thread that handles events consumes them.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace hvd {

class Sleeper {
 public:
  // Watches the bell and the sockets without owning them.
  static Result<Sleeper> create(const UniqueFd& bell, const std::vector<UniqueFd>& sockets);
  enum class Woken { by_time, by_outside, by_bell };  // by_bell: also by a socket or the alarm
  // Sleeps until an event or `until`. Level-triggered: an event that is not consumed wakes again. A signal counts as a
  // bell: the caller checks once more.
  Woken wait(TimePoint until) const;
  void set_alarm(Duration after) const;  // wakes one sleeper, once; setting it again postpones it
  Status watch(int descriptor) const;    // one more descriptor; not owned
  // Descriptors whose events concern only the driver: all of them together wake one sleeper once, and again after
  // rearm_outside(). So they do not keep another thread awake while the driver is busy.
  Status watch_outside(int descriptor);
  void forget_outside(int descriptor) const;
  bool has_outside() const { return static_cast<bool>(outside_); }
  void rearm_outside() const;
  void forget(const UniqueFd& socket) const;
  std::vector<int> descriptors() const { return {epoll_.get(), alarm_.get()}; }

 private:
  Sleeper(UniqueFd epoll, UniqueFd alarm) : epoll_(std::move(epoll)), alarm_(std::move(alarm)) {}
  UniqueFd epoll_;
  UniqueFd alarm_;
  UniqueFd outside_;  // an epoll set inside the other one
};

}  // namespace hvd
