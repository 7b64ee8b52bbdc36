#include "engine/host_links.h"

#include <poll.h>

#include <algorithm>

#include "net/poller.h"

namespace hvd {

HostLinks::HostLinks(Transport& transport, std::unique_ptr<ControlLink> parent, std::vector<Child> children)
    : transport_(transport), parent_(std::move(parent)), children_(std::move(children)) {}

Result<std::unique_ptr<HostLinks>> HostLinks::create(Transport& transport, std::unique_ptr<ControlLink> parent,
                                                     std::vector<Child> children) {
  std::unique_ptr<HostLinks> links(new HostLinks(transport, std::move(parent), std::move(children)));
  Status watched;
  links->each([&](ControlLink& link) {
    if (Status status = transport.waiter().watch(link.descriptor()); !status.ok()) watched = status;
  });
  if (!watched.ok()) return watched;
  return links;
}

void HostLinks::progress(TimePoint now) {
  std::lock_guard lock(mutex_);
  each([&](ControlLink& link) { progress(link, now); });
  spread_failure();
}

void HostLinks::spread_failure() {
  if (!transport_.failed()) return;
  Status failure = transport_.failure();
  each([&](ControlLink& link) { link.spread(failure); });
}

void HostLinks::progress(ControlLink& link, TimePoint now) {
  if (link.is_over()) return;
  Status status = link.progress(now);
  if (!link.failure().ok()) {
    transport_.abort(link.failure());
  } else if (!status.ok() && !transport_.peers().expects_departures()) {
    transport_.abort(status);
  }
  if (link.is_over()) transport_.waiter().unwatch(link.descriptor());
}

bool HostLinks::has_messages() const {
  std::lock_guard lock(mutex_);
  bool any = false;
  each([&](const ControlLink& link) { any = any || link.has_messages(); });
  return any;
}

TimePoint HostLinks::next_deadline() const {
  std::lock_guard lock(mutex_);
  TimePoint next = kNever;
  each([&](const ControlLink& link) { next = std::min(next, link.next_deadline()); });
  return next;
}

TimePoint HostLinks::next_beat() const {
  std::lock_guard lock(mutex_);
  TimePoint next = kNever;
  each([&](const ControlLink& link) { next = std::min(next, link.next_beat()); });
  return next;
}

void HostLinks::send_up(ByteView message) {
  std::lock_guard lock(mutex_);
  parent_->send(message);
}

void HostLinks::send_down(ByteView message) {
  std::lock_guard lock(mutex_);
  for (Child& child : children_) child.link->send(message);
}

void HostLinks::leave(TimePoint until) {
  std::lock_guard lock(mutex_);
  spread_failure();  // a rank that fails and leaves at once may not have called progress() since
  each([](ControlLink& link) { link.say_goodbye(); });
  for (;;) {
    TimePoint now = Clock::now();
    std::vector<pollfd> unsent;
    each([&](ControlLink& link) {
      if (link.is_over()) return;
      (void)link.progress(now);  // the link has ended in any case
      if (!link.is_over() && link.has_unsent()) unsent.push_back({link.descriptor(), POLLOUT, 0});
    });
    if (unsent.empty() || now >= until) return;
    ::poll(unsent.data(), unsent.size(), milliseconds_until(until));
  }
}

}  // namespace hvd
