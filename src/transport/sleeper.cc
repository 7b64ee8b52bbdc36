#include "transport/sleeper.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <ctime>

namespace hvd {
namespace {

// Some sleeps are shorter than a millisecond, the resolution of epoll_wait; kernels before 5.11 have no other call, and
// some containers forbid newer ones.
template <size_t N>
int wait_for_events(int epoll, epoll_event (&events)[N], TimePoint until) {
  if (until == kNever) return ::epoll_wait(epoll, events, N, -1);
  double left = std::clamp(seconds_of(until - Clock::now()), 0.0, 1e3);
#ifdef SYS_epoll_pwait2
  static std::atomic<bool> is_missing = false;
  if (!is_missing.load(std::memory_order_relaxed)) {
    long whole = static_cast<long>(left);
    timespec time{.tv_sec = whole, .tv_nsec = static_cast<long>((left - static_cast<double>(whole)) * 1e9)};
    long count = ::syscall(SYS_epoll_pwait2, epoll, events, N, &time, nullptr, 0);
    if (count >= 0 || errno == EINTR) return static_cast<int>(count);
    is_missing.store(true, std::memory_order_relaxed);
  }
#endif
  return ::epoll_wait(epoll, events, N, static_cast<int>(std::ceil(left * 1e3)));
}

}  // namespace

Result<Sleeper> Sleeper::create(const UniqueFd& bell, const std::vector<UniqueFd>& sockets) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return system_error("cannot create an epoll set", "");
  auto watch = [&](const UniqueFd& fd) {
    epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.fd = fd.get()}};
    return ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0;
  };
  if (!watch(bell)) return system_error("cannot watch a bell", "");
  // Edge-triggered, so that no thread has to consume the event.
  UniqueFd alarm(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  epoll_event rings{.events = EPOLLIN | EPOLLET, .data = {.fd = alarm.get()}};
  if (!alarm || ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, alarm.get(), &rings) != 0)
    return system_error("cannot create a timer", "");
  for (const UniqueFd& socket : sockets) {
    if (socket && !watch(socket)) return system_error("cannot watch a peer's socket", "");
  }
  return Sleeper(std::move(epoll), std::move(alarm));
}

Sleeper::Woken Sleeper::wait(TimePoint until) const {
  epoll_event events[4];
  int count = wait_for_events(epoll_.get(), events, until);
  if (count == 0) return Woken::by_time;
  for (int i = 0; i < count; i++) {
    if (events[i].data.fd != outside_.get()) return Woken::by_bell;
  }
  return count < 0 ? Woken::by_bell : Woken::by_outside;
}

void Sleeper::set_alarm(Duration after) const {
  auto whole = std::chrono::duration_cast<std::chrono::seconds>(after);
  itimerspec time{.it_interval = {},
                  .it_value = {.tv_sec = whole.count(), .tv_nsec = std::chrono::nanoseconds(after - whole).count()}};
  ::timerfd_settime(alarm_.get(), 0, &time, nullptr);  // fails only for bad arguments
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
