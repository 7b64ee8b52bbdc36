#include "transport/waiter.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace hvd {
namespace {

constexpr Duration kRingAfter = std::chrono::microseconds(4);   // a peer that will check by itself soon needs no bell
constexpr Duration kPatience = std::chrono::microseconds(100);  // and a paused one gets this long
constexpr Duration kNap = std::chrono::microseconds(200);
constexpr Duration kRetryFullRing = std::chrono::milliseconds(1);

}  // namespace

Waiter::Waiter(const Parts& parts, const WaitSettings& settings)
    : control_(parts.control),
      group_(parts.group),
      sleeper_(parts.sleeper),
      messages_(parts.messages),
      bells_(parts.bells),
      failure_(parts.failure),
      peers_(parts.peers),
      settings_(settings),
      quick_spins_(settings.spin > Duration{} ? 64 : 1) {
  control_.mine().activity.store(Activity::idle, std::memory_order_seq_cst);
}

Status Waiter::attach(Mesh* mesh) {
  mesh_ = mesh;
  return sleeper_.watch(mesh->descriptor());
}

void Waiter::enter() {
  entries_.store(entries_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  control_.mine().activity.store(Activity::driving, std::memory_order_relaxed);
}

bool Waiter::leave(bool pause) {
  RankBlock& mine = control_.mine();
  mine.activity.store(pause ? Activity::paused : Activity::idle, std::memory_order_seq_cst);
  if (!pause || !naps_.load(std::memory_order_seq_cst)) sleeper_.rearm_outside();
  bells_.ring_owed(Bells::Urgency::leaving);  // begins with a fence: the load below is ordered after the store above
  // A peer that waits for us rings when its patience ends; one that has left cannot, and has set `attention`.
  if (pause && mine.attention.load(std::memory_order_relaxed) == 0) return false;
  mine.attention.store(0, std::memory_order_relaxed);
  return messages_.has_incoming();
}

// A user thread that calls one collective after another always returns soon and checks by itself. If each message from
// another host woke the engine thread, it would take the core, and its turn, from that thread. So after such a message
// the engine thread naps: events from outside stay off, even when the driver leaves, until no thread has been here for
// a whole nap. Then it turns them on itself, so the value of naps_ that the last thread to leave has seen is correct.
void Waiter::sleep(TimePoint until) {
  std::atomic<Activity>& activity = control_.mine().activity;
  for (;;) {
    bool naps = naps_.load(std::memory_order_relaxed);
    uint32_t entries = entries_.load(std::memory_order_relaxed);
    Sleeper::Woken woken = sleeper_.wait(naps ? std::min(until, Clock::now() + kNap) : until);
    if (woken == Sleeper::Woken::by_bell) return;
    Activity now = activity.load(std::memory_order_seq_cst);
    if (woken == Sleeper::Woken::by_outside) {
      if (now != Activity::driving && now != Activity::paused) return;
      naps_.store(true, std::memory_order_seq_cst);
    } else if (naps && now != Activity::driving && entries == entries_.load(std::memory_order_relaxed)) {
      if (now == Activity::paused) activity.compare_exchange_strong(now, Activity::idle, std::memory_order_seq_cst);
      naps_.store(false, std::memory_order_seq_cst);
      sleeper_.rearm_outside();
    }
    if (until != kNever && Clock::now() >= until) return;
  }
}

void Waiter::wake() { bells_.ring(control_.rank); }

// The caller has already published something. answer_bell() first clears the alarm and then checks: if the alarm was
// still set here, the published data will be seen.
void Waiter::wake_later(Duration after) {
  if (!alarm_set_.exchange(true, std::memory_order_seq_cst)) sleeper_.set_alarm(after);
}

// The caller has already published something, with a fence in between; the driver announces that it sleeps before it
// checks.
void Waiter::wake_driver() {
  if (control_.mine().activity.load(std::memory_order_seq_cst) == Activity::blocked) wake();
}

void Waiter::answer_bell() {
  bells_.silence_mine();
  alarm_set_.exchange(false, std::memory_order_seq_cst);
  peers_.check();
}

// A driver that is awake polls memory anyway, so its event can be consumed. If it falls asleep at this moment, the
// consumed event may have been meant to wake it: then we ring again.
bool Waiter::answer_bell_for_driver() {
  std::atomic<Activity>& activity = control_.mine().activity;
  if (activity.load(std::memory_order_seq_cst) == Activity::blocked) {
    if (sleeper_.has_outside()) wake();  // an event from outside wakes only one sleeper, in this case us
    return false;
  }
  answer_bell();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (activity.load(std::memory_order_seq_cst) == Activity::blocked) wake();
  return true;
}

void Waiter::set_chores(std::function<TimePoint(TimePoint)> chores) {
  chores_ = std::move(chores);
  chores_at_ = TimePoint::min();
}

void Waiter::leave_by(TimePoint time, Origin origin) {
  departure_ = std::move(origin);
  leave_by_.store(time, std::memory_order_seq_cst);
  wake();
}

Status Waiter::wait_slowly(Predicate ready, TimePoint until, const char* what, int32_t for_rank) {
  TimePoint start = Clock::now();
  TimePoint now = start;
  int rung = 0;
  auto ring_in_time = [&] {
    if (rung == 0 && now > start + kRingAfter) bells_.ring_owed(Bells::Urgency::patient), rung++;
    if (rung == 1 && now > start + kPatience) bells_.ring_owed(Bells::Urgency::now), rung++;
  };
  do_chores(now);
  while (now < start + settings_.spin) {
    bool moves = mesh_is_busy();
    for (int i = 0; i < (moves ? 1 : 32); i++) {
      if (ready()) return {};
      relax();
    }
    if (moves && mesh_->progress() && ready()) return {};
    now = Clock::now();
    ring_in_time();
    do_chores(now);
    if (now >= until) return {};
  }
  while (now < start + settings_.yield && yielding_.is_worth_it(now)) {
    if (ready()) return {};
    if (failure_.is_set()) return ready() ? Status{} : failure_.get();  // data that arrived before the failure counts
    if (now >= until) return {};
    ring_in_time();
    do_chores(now);
    if (move_mesh()) {
      now = Clock::now();
      continue;
    }
    TimePoint before = Clock::now();
    ::sched_yield();
    now = Clock::now();
    yielding_.took(before, now);
  }
  return block({ready, until, start, what, for_rank});
}

Status Waiter::block(const Wait& wait) {
  bool is_collective = wait.for_rank >= 0;
  auto limit = [&](Duration time) { return is_collective && time > Duration{} ? wait.since + time : kNever; };
  TimePoint warn_at = limit(settings_.stall_warning), give_up = limit(settings_.collective_timeout);
  for (;;) {
    bool is_ready = sleep_once(wait, std::min({wait.until, warn_at, give_up}));
    // A predicate may consume what it finds: it is not called again after it returned true.
    do {
      is_ready = is_ready || wait.ready();
    } while (!is_ready && move_mesh());
    if (is_ready) return {};
    if (failure_.is_set()) return wait.ready() ? Status{} : failure_.get();
    TimePoint now = Clock::now();
    if (now >= wait.until) return {};
    if (now >= warn_at) {
      log_warning("{} has been waiting {:.0f} s for {} inside {}", my_name(), seconds_of(now - wait.since),
                  group_.name_of(wait.for_rank), wait.what);
      warn_at = now + settings_.stall_warning;
    }
    abort_late(wait, now, give_up);
  }
}

// Sleeps once, unless there is work to do. True: the wait is over.
bool Waiter::sleep_once(const Wait& wait, TimePoint until) {
  std::atomic<Activity>& activity = control_.mine().activity;
  activity.store(Activity::blocked, std::memory_order_seq_cst);
  control_.block->blocked.fetch_add(1, std::memory_order_seq_cst);
  bells_.ring_owed(Bells::Urgency::leaving);
  sleeper_.rearm_outside();
  if (chores_) chores_at_ = chores_(Clock::now());
  bool can_sleep = mesh_ == nullptr || mesh_->arm();
  bool is_ready = wait.ready();
  if (can_sleep && !is_ready && !failure_.is_set()) {
    TimePoint retry = messages_.has_unsent() ? Clock::now() + kRetryFullRing : kNever;
    sleeper_.wait(std::min({until, leave_by(wait), retry, chores_at_}));
  }
  if (mesh_ != nullptr) mesh_->disarm();
  control_.block->blocked.fetch_sub(1, std::memory_order_seq_cst);
  activity.store(Activity::driving, std::memory_order_seq_cst);
  answer_bell();
  messages_.flush();
  return is_ready;
}

void Waiter::abort_late(const Wait& wait, TimePoint now, TimePoint give_up) {
  if (now >= give_up) {
    failure_.set(
        {Code::unknown,
         fmt::format("{} did not take part in {} within {:g} s (HOROVOD_COLLECTIVE_TIMEOUT_SECONDS); {} waited",
                     group_.name_of(wait.for_rank), wait.what, seconds_of(settings_.collective_timeout), my_name()),
         group_.origin_of(OriginKind::deadline, wait.for_rank)});
  }
  if (now >= leave_by(wait)) {
    failure_.set({Code::unknown,
                  fmt::format("Horovod has been shut down by {} while {} did not take part in {}", my_name(),
                              group_.name_of(wait.for_rank), wait.what),
                  departure_});
  }
}

}  // namespace hvd
