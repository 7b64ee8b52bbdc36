// Where a rank sleeps: an epoll set with its bell, an alarm clock, and the sockets whose end tells that a peer died.
// Thread rule: any thread may wait; events are taken by the thread that answers them.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace hvd {

class Sleeper {
 public:
  // Watches the bell and the sockets; none is owned.
  static Result<Sleeper> create(const UniqueFd& bell, const std::vector<UniqueFd>& sockets);
  enum class Woken { by_time, by_outside, by_bell };  // by_bell: also by a socket or the alarm
  // Sleeps until something happens or the time comes. Level-triggered: what is not taken wakes again. A signal counts
  // as a bell, one more reason to look.
  Woken wait(TimePoint until) const;
  void set_alarm(Duration after) const;  // wakes one sleeper, once; set again, it comes later
  Status watch(int descriptor) const;    // one more; not owned
  // Descriptors whose events concern the driver alone: all of them together wake one sleeper once, and again after
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
  UniqueFd outside_;  // an epoll set inside the other
};

}  // namespace hvd
