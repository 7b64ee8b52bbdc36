#include "net/poller.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>

namespace hvd {
namespace {

constexpr uint64_t kAlarm = ~uint64_t{0};

Status watch(const UniqueFd& epoll, int fd, uint64_t tag, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return system_error("cannot watch a descriptor", "");
}

}  // namespace

Result<Poller> Poller::create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd alarm(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!epoll || !alarm) return system_error("cannot create an epoll or timer descriptor", "");
  if (Status status = watch(epoll, alarm.get(), kAlarm, EPOLLIN | EPOLLET); !status.ok()) return status;
  return Poller(std::move(epoll), std::move(alarm));
}

Status Poller::add(int fd, uint64_t tag) { return watch(epoll_, fd, tag, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET); }

Status Poller::watch_readable(int fd, uint64_t tag) { return watch(epoll_, fd, tag, EPOLLIN); }

void Poller::remove(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void Poller::set_alarm(TimePoint at) {
  if (at == alarm_at_) return;
  alarm_at_ = at;
  itimerspec spec{};  // zero disarms
  if (at != kNever) {
    auto since = std::max<std::chrono::nanoseconds>(at.time_since_epoch(), std::chrono::nanoseconds(1));
    spec.it_value.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(since).count();
    spec.it_value.tv_nsec = (since % std::chrono::seconds(1)).count();
  }
  ::timerfd_settime(alarm_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

const std::vector<uint64_t>& Poller::wait(TimePoint until) {
  std::array<epoll_event, 128> events;
  int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), milliseconds_until(until));
  tags_.clear();
  for (int i = 0; i < count; i++) {
    if (events[static_cast<size_t>(i)].data.u64 == kAlarm) {
      alarm_at_ = kNever;  // it has fired; the same time may be set again
    } else {
      tags_.push_back(events[static_cast<size_t>(i)].data.u64);
    }
  }
  return tags_;
}

int milliseconds_until(TimePoint until) {
  if (until == kNever) return -1;
  if (until == TimePoint::min()) return 0;
  auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

}  // namespace hvd
