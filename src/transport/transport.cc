#include "transport/transport.h"

#include <fmt/core.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>

#include "base/bell.h"
#include "base/log.h"
#include "base/round_up.h"

namespace hvd {
namespace {

constexpr char kGoodbye = 'B';
constexpr size_t kStagingAlignment = 2 << 20;
constexpr Duration kRingAfter = std::chrono::microseconds(4);   // a peer that is about to look by itself needs no bell
constexpr Duration kPatience = std::chrono::microseconds(100);  // and one that paused is given this long
constexpr Duration kNap = std::chrono::microseconds(200);
constexpr Duration kRetryFullRing = std::chrono::milliseconds(1);

}  // namespace

Result<std::unique_ptr<Transport>> Transport::create(HostGroup group, TransportSettings settings) {
  auto control = map_shared_memory(group.memory, 0, round_up(ControlBlock::bytes(group.size), 4096));
  if (!control.ok()) return control.status();
  auto sleeper = Sleeper::create(group.bells[static_cast<size_t>(group.rank)], group.sockets);
  if (!sleeper.ok()) return sleeper.status();
  return std::unique_ptr<Transport>(
      new Transport(std::move(group), settings, std::move(*control), std::move(*sleeper)));
}

Transport::Transport(HostGroup group, TransportSettings settings, Mapping control, Sleeper sleeper)
    : group_(std::move(group)),
      settings_(settings),
      quick_spins_(settings.spin > Duration{} ? 64 : 1),
      control_mapping_(std::move(control)),
      control_(reinterpret_cast<ControlBlock*>(control_mapping_.data())),
      sleeper_(std::move(sleeper)),
      up_readers_(static_cast<size_t>(group_.size)),
      departed_(static_cast<size_t>(group_.size)),
      closed_(static_cast<size_t>(group_.size)) {
  block_of(rank()).activity.store(Activity::idle, std::memory_order_seq_cst);
}

Transport::~Transport() = default;

// ---- control messages ----

uint64_t Transport::slowest_reader() const {
  if (!is_root()) return control_->up_read[rank()].value.load(std::memory_order_acquire);
  uint64_t slowest = UINT64_MAX;
  for (int32_t peer = 1; peer < size(); peer++) {
    slowest = std::min(slowest, block_of(peer).down_read.value.load(std::memory_order_acquire));
  }
  return slowest;
}

void Transport::send(ByteView message) {
  if (size() == 1) return;
  append_frame(unsent_, message);
  flush();
}

bool Transport::flush() {
  if (unsent_.empty()) return true;
  std::span<MessageLine> ring = is_root() ? std::span<MessageLine>(control_->down_ring) : block_of(rank()).up_ring;
  ByteView lines = ByteView(unsent_).subspan(unsent_sent_);
  // The readers' positions are looked at only when the last known ones leave no room.
  if (written_ + lines.size() / kLineBytes > slowest_known_ + ring.size()) slowest_known_ = slowest_reader();
  size_t count = put(ring, written_, slowest_known_, lines);
  if (count == 0) return false;
  written_ += count;
  (is_root() ? owed_down_ : owed_up_) = true;
  unsent_sent_ += count * kLineBytes;
  if (unsent_sent_ < unsent_.size()) return false;
  unsent_.clear();
  unsent_sent_ = 0;
  return true;
}

bool Transport::receive_up(int32_t from, ByteView& message) {
  UpReader& reader = up_readers_[static_cast<size_t>(from)];
  uint64_t before = reader.read;
  bool complete = reader.frame.take(block_of(from).up_ring, reader.read, message);
  if (reader.read != before) control_->up_read[from].value.store(reader.read, std::memory_order_release);
  if (reader.frame.broken())
    abort({Code::unknown, fmt::format("{} sent a message that is too long", rank_name(world_rank(from)))});
  return complete;
}

bool Transport::receive_down(ByteView& message) {
  uint64_t before = down_read_;
  bool complete = down_frame_.take(control_->down_ring, down_read_, message);
  if (down_read_ != before) block_of(rank()).down_read.value.store(down_read_, std::memory_order_release);
  if (down_frame_.broken())
    abort({Code::unknown, fmt::format("{} sent a message that is too long", rank_name(world_rank(0)))});
  return complete;
}

bool Transport::is_unread() const {
  return !is_root() && control_->up_read[rank()].value.load(std::memory_order_relaxed) != written_;
}

bool Transport::has_incoming() const {
  if (!is_root()) return has_line(control_->down_ring, down_read_);
  for (int32_t peer = 1; peer < size(); peer++) {
    if (has_line(block_of(peer).up_ring, up_readers_[static_cast<size_t>(peer)].read)) return true;
  }
  return false;
}

// ---- channels ----

Result<Channel*> Transport::open_channel(int32_t process_set, const std::vector<int32_t>& ranks) {
  assert(!channels_.contains(process_set));
  uint64_t base = ++channels_opened_ << 40;
  size_t bytes = round_up(Channel::bytes(settings_.channel, ranks.size()), kStagingAlignment);
  size_t offset = round_up(control_mapping_.size(), kStagingAlignment);
  for (const auto& [begin, end] : used_ranges_) {
    if (offset + bytes <= begin) break;
    offset = std::max(offset, end);
  }
  used_ranges_[offset] = offset + bytes;
  auto self = std::find(ranks.begin(), ranks.end(), rank());
  std::unique_ptr<Channel>& channel = channels_[process_set];
  if (self == ranks.end()) {
    outside_[process_set] = offset;  // the range is taken on every rank alike, so that all compute the same offsets
    return nullptr;
  }
  auto memory = map_shared_memory(group_.memory, offset, bytes);
  if (!memory.ok()) return memory.status();
  channel = std::make_unique<Channel>(*this, std::move(*memory), offset, settings_.channel, ranks,
                                      static_cast<int32_t>(self - ranks.begin()), base);
  return channel.get();
}

void Transport::close_channel(int32_t process_set) {
  auto found = channels_.find(process_set);
  if (found == channels_.end()) return;
  size_t offset = found->second ? found->second->offset_ : outside_[process_set];
  if (is_root()) discard_shared_memory(group_.memory, offset, used_ranges_[offset] - offset);
  used_ranges_.erase(offset);
  outside_.erase(process_set);
  channels_.erase(found);
}

Channel* Transport::channel(int32_t process_set) {
  auto found = channels_.find(process_set);
  return found == channels_.end() ? nullptr : found->second.get();
}

Status Transport::attach(std::unique_ptr<Mesh> mesh) {
  mesh_ = std::move(mesh);
  return sleeper_.watch(mesh_->descriptor());
}

Status Transport::watch(int descriptor) { return sleeper_.watch_outside(descriptor); }
void Transport::unwatch(int descriptor) { sleeper_.forget_outside(descriptor); }

// ---- heartbeats ----

void Transport::beat() { block_of(rank()).beats.value.fetch_add(1, std::memory_order_relaxed); }

Status Transport::find_silent(TimePoint now, Duration limit) {
  bool was_away = now - pulses_at_ > limit / 2;
  pulses_at_ = now;
  pulses_.resize(static_cast<size_t>(size()));
  for (int32_t peer = 0; peer < size(); peer++) {
    Pulse& pulse = pulses_[static_cast<size_t>(peer)];
    uint64_t beats = block_of(peer).beats.value.load(std::memory_order_relaxed);
    if (peer == rank() || was_away || beats != pulse.beats) pulse = {beats, now};
    if (now - pulse.changed >= limit) {
      return {Code::peer_lost, fmt::format("{} is lost: silent for {:.1f} s", rank_name(world_rank(peer)),
                                           seconds_of(now - pulse.changed))};
    }
  }
  return {};
}

// ---- waiting ----

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

// Who calls has published something before, with a fence in between; the driver says that it sleeps before it looks.
void Transport::wake_driver() {
  if (block_of(rank()).activity.load(std::memory_order_seq_cst) == Activity::blocked) wake();
}

void Transport::answer_bell() {
  silence(group_.bells[static_cast<size_t>(rank())]);
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
  while (now < start + settings_.yield) {
    if (ready()) return {};
    if (failed()) return failure();
    if (now >= until) return {};
    ring_in_time();
    do_chores(now);
    if (!move_mesh()) ::sched_yield();
    now = Clock::now();
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
    if (can_sleep && !is_ready && !failed()) {
      TimePoint retry = unsent_.empty() ? kNever : Clock::now() + kRetryFullRing;
      sleeper_.wait(std::min({until, warn_at, give_up, retry, chores_at_}));
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
    if (failed()) return failure();
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
                         rank_name(world_rank(rank())))});
    }
  }
}

// ---- failure ----

void Transport::check_peers() {
  if (mesh_ != nullptr) mesh_->check_peers();
  std::lock_guard lock(peers_mutex_);
  for (size_t peer = 0; peer < group_.sockets.size(); peer++) {
    UniqueFd& socket = group_.sockets[peer];
    if (!socket || closed_[peer]) continue;
    char byte = 0;
    ssize_t got = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got == 1 && byte == kGoodbye) {
      departed_[peer] = true;
      continue;  // the end follows; it is looked at with the next event
    }
    closed_[peer] = true;
    sleeper_.forget(socket);
    if (departed_[peer] || departures_expected_) continue;
    abort({Code::peer_lost, fmt::format("{} is gone: its process ended without shutting Horovod down",
                                        rank_name(world_rank(static_cast<int32_t>(peer))))});
  }
}

void Transport::say_goodbye() {
  for (const UniqueFd& socket : group_.sockets) {
    if (socket) ::send(socket.get(), &kGoodbye, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  if (mesh_ != nullptr) mesh_->say_goodbye();
}

void Transport::abort(const Status& status) {
  uint32_t none = 0;
  if (control_->failed.compare_exchange_strong(none, 1)) {
    control_->failure_code = static_cast<int32_t>(status.code());
    size_t length = std::min(status.message().size(), sizeof control_->failure_text - 1);
    std::memcpy(control_->failure_text, status.message().data(), length);
    control_->failure_text[length] = 0;
    control_->failed.store(2, std::memory_order_release);
  }
  for (int32_t peer = 0; peer < size(); peer++) ring_rank(peer);
}

Status Transport::failure() const {
  if (!failed()) return {};
  // The writer is between two stores; should it have died there, the text is lost but not the failure.
  for (int i = 0; i < 1'000'000 && control_->failed.load(std::memory_order_acquire) != 2; i++) relax();
  if (control_->failed.load(std::memory_order_acquire) != 2) return {Code::peer_lost, "a rank died"};
  return {static_cast<Code>(control_->failure_code), control_->failure_text};
}

std::vector<int> Transport::descriptors() const {
  std::vector<int> fds{group_.memory.get(), sleeper_.descriptor()};
  for (const UniqueFd& bell : group_.bells) fds.push_back(bell.get());
  for (const UniqueFd& socket : group_.sockets) {
    if (socket) fds.push_back(socket.get());
  }
  if (mesh_ != nullptr) mesh_->list_descriptors(fds);
  return fds;
}

}  // namespace hvd
