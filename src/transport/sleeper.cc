#include "transport/sleeper.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cmath>

namespace hvd {

Result<Sleeper> Sleeper::create(const UniqueFd& bell, const std::vector<UniqueFd>& sockets) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return system_error("cannot create an epoll set", "");
  auto watch = [&](const UniqueFd& fd) {
    epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.fd = fd.get()}};
    return ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0;
  };
  if (!watch(bell)) return system_error("cannot watch a bell", "");
  for (const UniqueFd& socket : sockets) {
    if (socket && !watch(socket)) return system_error("cannot watch a peer's socket", "");
  }
  return Sleeper(std::move(epoll));
}

void Sleeper::wait(TimePoint until) const {
  int milliseconds = -1;
  if (until != kNever) {
    double left = seconds_of(until - Clock::now());
    milliseconds = static_cast<int>(std::clamp(std::ceil(left * 1e3), 0.0, 1e6));
  }
  epoll_event event{};
  ::epoll_wait(epoll_.get(), &event, 1, milliseconds);  // EINTR is one more reason to look again
}

Status Sleeper::watch(int descriptor) const {
  epoll_event event{.events = EPOLLIN, .data = {.fd = descriptor}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) return system_error("cannot watch a mesh", "");
  return {};
}

Status Sleeper::watch_outside(int descriptor) {
  if (!outside_) {
    UniqueFd outside(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.fd = outside.get()}};
    if (!outside || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, outside.get(), &event) != 0)
      return system_error("cannot create an epoll set", "");
    outside_ = std::move(outside);
  }
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.fd = descriptor}};
  if (::epoll_ctl(outside_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    return system_error("cannot watch a connection", "");
  return {};
}

void Sleeper::forget_outside(int descriptor) const {
  if (outside_) ::epoll_ctl(outside_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
}

void Sleeper::rearm_outside() const {
  if (!outside_) return;
  epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.fd = outside_.get()}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, outside_.get(), &event);
}

void Sleeper::forget(const UniqueFd& socket) const { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.get(), nullptr); }

}  // namespace hvd
