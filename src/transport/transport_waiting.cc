// How a rank waits and how others wake it: the part of Transport that knows about bells, naps and patience.
#include <fmt/core.h>
#include <sched.h>

#include <algorithm>

#include "base/bell.h"
#include "base/log.h"
#include "transport/transport.h"

namespace hvd {
namespace {

constexpr Duration kRingAfter = std::chrono::microseconds(4);   // a peer that is about to look by itself needs no bell
constexpr Duration kPatience = std::chrono::microseconds(100);  // and one that paused is given this long
constexpr Duration kNap = std::chrono::microseconds(200);
constexpr Duration kRetryFullRing = std::chrono::milliseconds(1);

}  // namespace

void Transport::enter() {
  entries_.store(entries_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  block_of(rank()).activity.store(Activity::driving, std::memory_order_relaxed);
}

bool Transport::leave(bool pause) {
  RankBlock& mine = block_of(rank());
  mine.activity.store(pause ? Activity::paused : Activity::idle, std::memory_order_seq_cst);
  if (!pause || !naps_.load(std::memory_order_seq_cst)) sleeper_.rearm_outside();
  ring_owed(Ringing::leaving);  // begins with a fence: what follows is seen after the store above
  // A peer that waits for us rings by itself when its patience ends; who left cannot, and has set `attention`.
  if (pause && mine.attention.load(std::memory_order_relaxed) == 0) return false;
  mine.attention.store(0, std::memory_order_relaxed);
  return has_incoming();
}

// A message or flag was published before; the fence orders that with looking at whether its reader sleeps. The reader
// does the mirror image: it says that it sleeps, then looks at the message. One of the two sees the other.
void Transport::ring_owed(Ringing how) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // What stays unread stays owed: a reader that drives now may leave without looking.
  if (owed_up_) {
    owed_up_ = is_unread();
    if (owed_up_) ring_reader(0, how);
  }
  if (owed_down_) {
    owed_down_ = false;
    for (int32_t peer = 1; peer < size(); peer++) {
      if (block_of(peer).down_read.value.load(std::memory_order_relaxed) == written_) continue;
      owed_down_ = true;
      ring_reader(peer, how);
    }
  }
  if (std::exchange(owed_data_, false)) ring_blocked();
}

void Transport::ring_reader(int32_t peer, Ringing how) {
  RankBlock& reader = block_of(peer);
  if (how == Ringing::leaving) reader.attention.store(1, std::memory_order_seq_cst);
  Activity activity = reader.activity.load(std::memory_order_seq_cst);
  if (activity == Activity::driving || (how == Ringing::patient && activity == Activity::paused)) return;
  ring_rank(peer);
}

void Transport::ring_blocked() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (control_->blocked.load(std::memory_order_relaxed) == 0) return;
  for (int32_t peer = 0; peer < size(); peer++) {
    if (peer != rank() && block_of(peer).activity.load(std::memory_order_relaxed) == Activity::blocked) ring_rank(peer);
  }
}

// A user thread that calls one collective after the other is always about to come back and look by itself. Were the
// engine thread woken by each message from another host, it would take the core, and its turn, from that thread. So
// once such a message has come it naps: events from outside stay off, also when the driver leaves, until nobody has
// been here for a whole nap. It switches them on itself then, so that whatever the last to leave has seen of naps_ is
// right.
void Transport::sleep(TimePoint until) {
  std::atomic<Activity>& activity = block_of(rank()).activity;
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

void Transport::ring_rank(int32_t rank) { ring(group_.bells[static_cast<size_t>(rank)]); }

void Transport::wake() { ring_rank(rank()); }

// Who calls has published something before. Who answers forgets the alarm first and looks then: if it was still set for
// us, what we have published is seen.
void Transport::wake_later(Duration after) {
  if (!alarm_set_.exchange(true, std::memory_order_seq_cst)) sleeper_.set_alarm(after);
}

// Who calls has published something before, with a fence in between; the driver says that it sleeps before it looks.
void Transport::wake_driver() {
  if (block_of(rank()).activity.load(std::memory_order_seq_cst) == Activity::blocked) wake();
}

void Transport::answer_bell() {
  silence(group_.bells[static_cast<size_t>(rank())]);
  alarm_set_.exchange(false, std::memory_order_seq_cst);
  check_peers();
}

// A driver that is awake looks at memory anyway, so its event can be taken. If it falls asleep at this moment, what we
// took may have been meant to wake it: then we ring again.
bool Transport::answer_bell_for_driver() {
  std::atomic<Activity>& activity = block_of(rank()).activity;
  if (activity.load(std::memory_order_seq_cst) == Activity::blocked) {
    if (sleeper_.has_outside()) wake();  // an event from outside is given to one sleeper only, which was us
    return false;
  }
  answer_bell();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (activity.load(std::memory_order_seq_cst) == Activity::blocked) wake();
  return true;
}

void Transport::set_chores(std::function<TimePoint(TimePoint)> chores) {
  chores_ = std::move(chores);
  chores_at_ = TimePoint::min();
}

void Transport::leave_by(TimePoint time, Origin origin) {
  departure_ = std::move(origin);
  leave_by_.store(time, std::memory_order_seq_cst);
  wake();
}

Status Transport::wait_slowly(Predicate ready, TimePoint until, const char* what, int32_t for_rank) {
  TimePoint start = Clock::now();
  TimePoint now = start;
  int rung = 0;
  auto ring_in_time = [&] {
    if (rung == 0 && now > start + kRingAfter) ring_owed(Ringing::patient), rung++;
    if (rung == 1 && now > start + kPatience) ring_owed(Ringing::now), rung++;
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
    if (failed()) return ready() ? Status{} : failure();  // what came before the failure counts
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
  return block(ready, until, start, what, for_rank);
}

Status Transport::block(Predicate ready, TimePoint until, TimePoint since, const char* what, int32_t for_rank) {
  std::atomic<Activity>& activity = block_of(rank()).activity;
  TimePoint warn_at = settings_.stall_warning > Duration{} && for_rank >= 0 ? since + settings_.stall_warning : kNever;
  TimePoint give_up =
      settings_.collective_timeout > Duration{} && for_rank >= 0 ? since + settings_.collective_timeout : kNever;
  for (;;) {
    activity.store(Activity::blocked, std::memory_order_seq_cst);
    control_->blocked.fetch_add(1, std::memory_order_seq_cst);
    ring_owed(Ringing::leaving);
    sleeper_.rearm_outside();
    if (chores_) chores_at_ = chores_(Clock::now());
    bool can_sleep = mesh_ == nullptr || mesh_->arm();
    bool is_ready = ready();
    TimePoint leave_by = for_rank >= 0 ? leave_by_.load(std::memory_order_seq_cst) : kNever;
    if (can_sleep && !is_ready && !failed()) {
      TimePoint retry = unsent_.empty() ? kNever : Clock::now() + kRetryFullRing;
      sleeper_.wait(std::min({until, warn_at, give_up, leave_by, retry, chores_at_}));
    }
    if (mesh_ != nullptr) mesh_->disarm();
    control_->blocked.fetch_sub(1, std::memory_order_seq_cst);
    activity.store(Activity::driving, std::memory_order_seq_cst);
    answer_bell();
    flush();
    // A predicate may take what it finds: it is not asked again once it was true.
    do {
      is_ready = is_ready || ready();
    } while (!is_ready && move_mesh());
    if (is_ready) return {};
    if (failed()) return ready() ? Status{} : failure();
    TimePoint now = Clock::now();
    if (now >= until) return {};
    if (now >= warn_at) {
      log_warning("{} has been waiting {:.0f} s for {} inside {}", rank_name(world_rank(rank())),
                  seconds_of(now - since), rank_name(for_rank), what);
      warn_at = now + settings_.stall_warning;
    }
    if (now >= give_up) {
      abort({Code::unknown,
             fmt::format("{} did not take part in {} within {:g} s (HOROVOD_COLLECTIVE_TIMEOUT_SECONDS); {} waited",
                         rank_name(for_rank), what, seconds_of(settings_.collective_timeout),
                         rank_name(world_rank(rank()))),
             origin_of(OriginKind::deadline, for_rank)});
    }
    if (now >= leave_by) {
      abort({Code::unknown,
             fmt::format("Horovod has been shut down by {} while {} did not take part in {}",
                         rank_name(world_rank(rank())), rank_name(for_rank), what),
             departure_});
    }
  }
}

}  // namespace hvd
