// How a sleeping rank is woken: an eventfd per rank that every rank of the host may write, and the epoll set in which a
// rank sleeps, together with the sockets that tell that a peer died.
// Thread rule: ring() and wait() from any thread; at most one thread consumes events (take()).
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace hvd {

Result<UniqueFd> create_bell();
void ring(const UniqueFd& bell);  // never blocks
void silence(const UniqueFd& bell);

class Sleeper {
 public:
  // Watches the bell and the sockets; none is owned.
  static Result<Sleeper> create(const UniqueFd& bell, const std::vector<UniqueFd>& sockets);
  // Sleeps until something happens or the time comes. Level-triggered: what is not taken wakes again.
  void wait(TimePoint until) const;
  void forget(const UniqueFd& socket) const;
  int descriptor() const { return epoll_.get(); }

 private:
  explicit Sleeper(UniqueFd epoll) : epoll_(std::move(epoll)) {}
  UniqueFd epoll_;
};

}  // namespace hvd
