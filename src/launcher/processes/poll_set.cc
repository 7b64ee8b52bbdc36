#include "launcher/processes/poll_set.h"

#include <algorithm>
#include <utility>

#include "net/poller.h"

namespace hvd::launcher {

void PollSet::add(int fd, short events, std::function<void()> action) {
  wanted_.push_back({.fd = fd, .events = events, .revents = 0});
  actions_.push_back(std::move(action));
}

void PollSet::wake_at(TimePoint when) { wake_ = std::min(wake_, when); }

void PollSet::wait() {
  std::vector<pollfd> wanted = std::exchange(wanted_, {});
  std::vector<std::function<void()>> actions = std::exchange(actions_, {});
  if (::poll(wanted.data(), wanted.size(), milliseconds_until(std::exchange(wake_, kNever))) <= 0) return;
  for (size_t i = 0; i < wanted.size(); i++) {
    if (wanted[i].revents != 0) actions[i]();
  }
}

}  // namespace hvd::launcher
