#include "engine/watch.h"

#include <pthread.h>

#include <algorithm>
#include <vector>

namespace hvd {
namespace {

// A connection may have been closed by a survivor that learned the cause first. The news of a dead process comes over
// the control links at once, but each rank on the way may have to wait for a core.
constexpr Duration kCauseTravels = std::chrono::milliseconds(800);

}  // namespace

Watch::Watch(Transport& transport, HostLinks* links, WatchSettings settings, observe::Writer* observer)
    : transport_(transport),
      links_(links),
      settings_(settings),
      observer_(observer),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

void Watch::report_loss(const Status& status) {
  std::lock_guard lock(mutex_);
  if (!loss_.ok()) return;
  loss_ = status;
  loss_due_ = Clock::now() + kCauseTravels;
  lost_.notify_one();
}

void Watch::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  transport_.heartbeats().stop();
}

void Watch::run(const std::stop_token& stop) {
  ::pthread_setname_np(::pthread_self(), "hvd-watch");
  // Silence that accrued while this process was not scheduled is ignored (Heartbeats, Hearing), so check the others
  // well before they count as silent.
  const Duration period = std::min(settings_.heartbeat, settings_.silence / 4);
  TimePoint next_beat{};
  while (!stop.stop_requested()) {
    TimePoint now = Clock::now();
    if (now >= next_beat) {
      beat(now);
      next_beat = now + period;
    }
    TimePoint next = std::min({next_beat, keep_links(now), end_by_loss(now)});
    std::unique_lock lock(mutex_);
    lost_.wait_until(lock, stop, next, [&] { return loss_due_ < next; });
  }
}

void Watch::tell_observer() const {
  observer_->on_beat();
  const Mesh* mesh = transport_.mesh();
  if (mesh == nullptr) return;
  std::vector<observe::LinkFacts> links;
  for (const Mesh::Traffic& one : mesh->traffic())
    links.push_back({.peer = one.peer,
                     .sent = one.sent,
                     .received = one.received,
                     .retransmits = one.retransmits,
                     .round_trip = one.round_trip,
                     .connections = one.connections});
  observer_->set_links(links);
}

void Watch::beat(TimePoint now) {
  transport_.heartbeats().beat();
  if (observer_ != nullptr) tell_observer();
  transport_.peers().check();  // the end of a process is more precise than its silence
  if (transport_.peers().expects_departures()) return;
  if (Mesh* mesh = transport_.mesh()) mesh->find_unreachable(now, settings_.silence);
  if (Status status = transport_.heartbeats().find_silent(now, settings_.silence); !status.ok())
    transport_.abort(status);
}

// Bytes read here no longer wake a thread that sleeps for them.
TimePoint Watch::keep_links(TimePoint now) {
  if (links_ == nullptr) return kNever;
  links_->progress(now);
  if (links_->has_messages()) transport_.waiter().wake();
  return links_->next_beat();
}

TimePoint Watch::end_by_loss(TimePoint now) {
  Status loss;
  {
    std::lock_guard lock(mutex_);
    if (now < loss_due_) return loss_due_;
    loss_due_ = kNever;
    loss = loss_;
  }
  if (!transport_.failed() && !transport_.peers().expects_departures()) transport_.abort(loss);
  return kNever;
}

}  // namespace hvd
