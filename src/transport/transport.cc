#include "transport/transport.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>

#include "base/bell.h"
#include "base/round_up.h"

namespace hvd {
namespace {

constexpr char kGoodbye = 'B';
constexpr size_t kStagingAlignment = 2 << 20;
constexpr uint64_t kHasLeft = UINT64_MAX;  // instead of a number of beats

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
    abort({Code::unknown, fmt::format("{} sent a message that is too long", rank_name(world_rank(from))),
           origin_of(OriginKind::internal, world_rank(from))});
  return complete;
}

bool Transport::receive_down(ByteView& message) {
  uint64_t before = down_read_;
  bool complete = down_frame_.take(control_->down_ring, down_read_, message);
  if (down_read_ != before) block_of(rank()).down_read.value.store(down_read_, std::memory_order_release);
  if (down_frame_.broken())
    abort({Code::unknown, fmt::format("{} sent a message that is too long", rank_name(world_rank(0))),
           origin_of(OriginKind::internal, world_rank(0))});
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
void Transport::stop_beating() { block_of(rank()).beats.value.store(kHasLeft, std::memory_order_relaxed); }

Status Transport::find_silent(TimePoint now, Duration limit) {
  bool was_away = now - pulses_at_ > limit / 2;
  pulses_at_ = now;
  pulses_.resize(static_cast<size_t>(size()));
  for (int32_t peer = 0; peer < size(); peer++) {
    Pulse& pulse = pulses_[static_cast<size_t>(peer)];
    uint64_t beats = block_of(peer).beats.value.load(std::memory_order_relaxed);
    if (peer == rank() || was_away || beats != pulse.beats || beats == kHasLeft) pulse = {beats, now};
    if (now - pulse.changed >= limit) {
      return {
          Code::peer_lost,
          fmt::format("{} is lost: silent for {:.1f} s", rank_name(world_rank(peer)), seconds_of(now - pulse.changed)),
          origin_of(OriginKind::silent, world_rank(peer))};
    }
  }
  return {};
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
    int32_t rank = world_rank(static_cast<int32_t>(peer));
    abort({Code::peer_lost, fmt::format("{} is gone: its process ended without shutting Horovod down", rank_name(rank)),
           origin_of(OriginKind::lost, rank)});
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
    // Who does not name another is the origin itself.
    Bytes origin;
    Encoder out(origin);
    encode(out, status.origin().kind == OriginKind::none ? origin_of(OriginKind::internal, world_rank(rank()))
                                                         : status.origin());
    control_->failure_origin_size = static_cast<uint32_t>(std::min(origin.size(), sizeof control_->failure_origin));
    std::memcpy(control_->failure_origin, origin.data(), control_->failure_origin_size);
    control_->failed.store(2, std::memory_order_release);
  }
  for (int32_t peer = 0; peer < size(); peer++) ring_rank(peer);
}

Status Transport::failure() const {
  if (!failed()) return {};
  // The writer is between two stores; should it have died there, the text is lost but not the failure.
  for (int i = 0; i < 1'000'000 && control_->failed.load(std::memory_order_acquire) != 2; i++) relax();
  if (control_->failed.load(std::memory_order_acquire) != 2) return {Code::peer_lost, "a rank died"};
  Decoder origin(ByteView(control_->failure_origin, control_->failure_origin_size));
  return {static_cast<Code>(control_->failure_code), control_->failure_text, decode_origin(origin)};
}

Origin Transport::origin_of(OriginKind kind, int32_t world_rank, std::string text) const {
  return placed({.kind = kind, .rank = world_rank, .text = std::move(text)});
}

Origin Transport::placed(Origin origin) const {
  if (origin.rank >= 0 && static_cast<size_t>(origin.rank) < group_.places.size()) {
    const RankPlace& place = group_.places[static_cast<size_t>(origin.rank)];
    origin.host = place.host;
    origin.pid = place.pid;
  }
  return origin;
}

std::vector<int> Transport::descriptors() const {
  std::vector<int> fds = sleeper_.descriptors();
  fds.push_back(group_.memory.get());
  for (const UniqueFd& bell : group_.bells) fds.push_back(bell.get());
  for (const UniqueFd& socket : group_.sockets) {
    if (socket) fds.push_back(socket.get());
  }
  if (mesh_ != nullptr) mesh_->list_descriptors(fds);
  return fds;
}

}  // namespace hvd
