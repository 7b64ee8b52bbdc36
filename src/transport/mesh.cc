#include "transport/mesh.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstring>

namespace hvd {
namespace {

// After that many bytes the other direction, the other peers and the waiting thread get a turn. With calls for less
// than fits the caches of two cores, the kernel reuses the same few pages, which are still in the reader's cache: on
// the loopback interface a quarter of this size costs an eighth more time.
constexpr size_t kMostAtOnce = 1 << 20;

// With a linger time of zero, a close without shutdown (the process died) resets the connection instead of closing it
// normally. Unix sockets accept the option and ignore it.
void set_linger(int descriptor, bool reset_on_close) {
  linger how{.l_onoff = reset_on_close ? 1 : 0, .l_linger = 0};
  ::setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &how, sizeof how);
}

// Whether bytes, or window probes, are sent repeatedly and the peer's host answers none of them: nothing has arrived
// since the last one, nor for `since`. If a peer does not read, its host still answers, if only that there is no room.
// TCP probes at increasing intervals, so answers may be rare, and hosts omit an answer soon after another.
bool is_unanswered(int descriptor, Duration since) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;  // not TCP
  constexpr int kTries = 2;
  bool sends_again = info.tcpi_unacked > 0 && info.tcpi_retransmits >= kTries;
  bool asks = info.tcpi_probes >= kTries || (sends_again && info.tcpi_last_ack_recv > info.tcpi_last_data_sent);
  return asks && std::chrono::milliseconds(info.tcpi_last_ack_recv) >= since;
}

// The kernel's tcp_info is longer than that of most C libraries: they end before these fields.
constexpr size_t kBytesAcked = 120, kBytesReceived = 128, kTcpInfoSize = 136;

// Adds one connection.
void count(Mesh::Traffic& traffic, int descriptor) {
  std::array<std::byte, std::max(kTcpInfoSize, sizeof(tcp_info))> fields{};
  socklen_t length = sizeof fields;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, fields.data(), &length) != 0) return;  // not TCP
  tcp_info info{};
  std::memcpy(&info, fields.data(), sizeof info);
  uint64_t acked = 0, received = 0;
  std::memcpy(&acked, &fields[kBytesAcked], sizeof acked);
  std::memcpy(&received, &fields[kBytesReceived], sizeof received);
  traffic.connections++;
  traffic.retransmits += info.tcpi_total_retrans;
  traffic.round_trip = std::max<uint64_t>(traffic.round_trip, info.tcpi_rtt);
  traffic.sent += acked;
  traffic.received += received;
}

Status error_of(int descriptor) {
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &length);
  if (error == 0) error = ECONNRESET;
  return {Code::peer_lost, std::strerror(error)};
}

}  // namespace

void Mesh::Peer::set_stripes(size_t count) {
  choice.set_most(count);
  out.set_stripes(count);
  in.set_stripes(count);
}

Result<std::unique_ptr<Mesh>> Mesh::create(std::function<void(int32_t, const Status&)> on_lost, MeshSettings settings) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return system_error("cannot create an epoll set", "");
  return std::unique_ptr<Mesh>(new Mesh(std::move(epoll), std::move(on_lost), settings));
}

Mesh::Mesh(UniqueFd epoll, std::function<void(int32_t, const Status&)> on_lost, MeshSettings settings)
    : epoll_(std::move(epoll)), on_lost_(std::move(on_lost)), settings_(settings) {}

void Mesh::add(int32_t peer, std::unique_ptr<Stream> stream) {
  std::vector<std::unique_ptr<Stream>> one;
  one.push_back(std::move(stream));
  add(peer, std::move(one));
}

void Mesh::add(int32_t rank, std::vector<std::unique_ptr<Stream>> stripes) {
  assert(!peers_.contains(rank) && !stripes.empty());
  connect(add_peer(rank), std::move(stripes));
}

Mesh::Peer& Mesh::add_peer(int32_t rank) {
  std::lock_guard lock(list_mutex_);
  return *(peers_[rank] = std::make_unique<Peer>(rank, settings_));
}

void Mesh::connect(Peer& peer, std::vector<std::unique_ptr<Stream>> stripes) {
  std::lock_guard lock(list_mutex_);
  peer.set_stripes(stripes.size());
  peer.connections.reserve(stripes.size());  // the epoll set points into it
  for (std::unique_ptr<Stream>& stream : stripes) {
    Connection& connection = peer.connections.emplace_back();
    connection.peer = &peer;
    connection.stream = std::move(stream);
    connection.answered_at = Clock::now();
    set_linger(connection.stream->descriptor(), true);
    epoll_event event{.events = EPOLLRDHUP, .data = {.ptr = &connection}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.stream->descriptor(), &event);
  }
}

Mesh::Peer& Mesh::peer_of(int32_t rank) {
  if (auto peer = peers_.find(rank); peer != peers_.end()) return *peer->second;
  assert(dialer_ != nullptr);
  dialer_->open(rank, Clock::now());
  return add_peer(rank);
}

bool Mesh::move_dialer() {
  bool moved = false;
  while (dialer_->is_busy()) {
    auto opened = dialer_->poll(Clock::now());
    if (!opened) break;
    moved = true;
    Peer& peer = *peers_.at(opened->peer);
    if (!opened->stripes.ok()) {
      lose(peer, opened->stripes.status());
      continue;
    }
    connect(peer, std::move(*opened->stripes));
  }
  return moved;
}

void Mesh::activate(Peer& peer) {
  if (std::exchange(peer.active, true)) return;
  active_.push_back(&peer);
}

// Sends as much as possible at once: a small message is on its way before any wait.
Mesh::Ticket Mesh::send(int32_t rank, ByteView bytes) {
  Peer& peer = peer_of(rank);
  bool first = peer.out.is_empty();
  peer.out.push(bytes);
  Ticket ticket{.peer = rank, .outgoing = true, .position = peer.out.queued()};
  if (peer.lost) peer.out.clear();
  if (first && !peer.out.is_empty()) {
    if (peer.choice.is_open()) peer.choice.resume(Clock::now());
    for (size_t stripe = 0; stripe < peer.connections.size(); stripe++) move_out(peer, stripe);
  }
  if (!peer.out.is_empty()) activate(peer);
  return ticket;
}

Mesh::Ticket Mesh::receive(int32_t rank, std::span<std::byte> bytes) {
  Peer& peer = peer_of(rank);
  peer.in.push(bytes);
  if (peer.lost) peer.in.clear();
  if (!peer.in.is_empty()) activate(peer);
  return {.peer = rank, .outgoing = false, .position = peer.in.queued()};
}

bool Mesh::is_done(const Ticket& ticket) const {
  if (ticket.peer < 0) return true;
  const Peer& peer = *peers_.at(ticket.peer);
  return (ticket.outgoing ? peer.out.done() : peer.in.done()) >= ticket.position;
}

bool Mesh::move_out(Peer& peer, size_t stripe) {
  size_t moved = 0;
  while (moved < kMostAtOnce && !peer.lost) {
    ByteView bytes = peer.out.next(stripe);
    bytes = bytes.first(std::min(bytes.size(), kMostAtOnce));
    if (bytes.empty()) break;
    auto sent = peer.connections[stripe].stream->write(bytes);
    if (!sent.ok()) {
      lose(peer, sent.status());
      break;
    }
    if (*sent > 0) peer.out.advance(stripe, *sent);
    moved += *sent;
    if (*sent < bytes.size()) break;  // no more room
  }
  if (moved > 0) note_progress(peer);
  return moved > 0;
}

void Mesh::note_progress(Peer& peer) {
  bool is_open = peer.choice.is_open();
  while (size_t width = peer.out.take_finished()) {
    if (is_open) peer.choice.record(width, Clock::now());
  }
  if (is_open && peer.out.is_empty()) peer.choice.pause(Clock::now());
}

bool Mesh::move_in(Peer& peer, size_t stripe) {
  size_t moved = 0;
  while (moved < kMostAtOnce && !peer.lost) {
    std::span<std::byte> bytes = peer.in.next(stripe);
    bytes = bytes.first(std::min(bytes.size(), kMostAtOnce));
    if (bytes.empty()) break;
    Stream& stream = *peer.connections[stripe].stream;
    auto got = stream.read(bytes);
    if (!got.ok()) {
      lose(peer, got.status());
      break;
    }
    if (*got > 0) peer.in.advance(stripe, *got);
    if (peer.in.is_broken()) lose(peer, {Code::peer_lost, "it sent invalid data"});
    moved += *got;
    if (*got < bytes.size() && !stream.has_buffered()) break;  // nothing more to read
  }
  while (peer.in.take_finished() > 0) continue;
  return moved > 0;
}

bool Mesh::move(Peer& peer) {
  bool moved = false;
  for (size_t stripe = 0; stripe < peer.connections.size(); stripe++) {
    if (move_out(peer, stripe)) moved = true;
    if (move_in(peer, stripe)) moved = true;
  }
  return moved;
}

bool Mesh::progress() {
  bool moved = dialer_ != nullptr && dialer_->is_busy() && move_dialer();
  for (size_t i = 0; i < active_.size();) {
    Peer& peer = *active_[i];
    if (move(peer)) moved = true;
    if (peer.is_idle()) {
      peer.active = false;
      active_[i] = active_.back();
      active_.pop_back();
    } else {
      i++;
    }
  }
  return moved;
}

// A connection that check_peers() has removed because it ended cannot be armed: its remaining data, and then its end,
// can be read at once.
bool Mesh::arm(Peer& peer) {
  bool can_sleep = true;
  for (size_t stripe = 0; stripe < peer.connections.size(); stripe++) {
    Connection& connection = peer.connections[stripe];
    bool reads = !peer.in.next(stripe).empty(), writes = !peer.out.next(stripe).empty();
    if (!reads && !writes) continue;
    if (reads && connection.stream->has_buffered()) can_sleep = false;
    epoll_event event{.events = EPOLLRDHUP | (reads ? EPOLLIN : 0u) | (writes ? EPOLLOUT : 0u),
                      .data = {.ptr = &connection}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.stream->descriptor(), &event) != 0) {
      can_sleep = false;
      continue;
    }
    if (!std::exchange(connection.armed, true)) armed_.push_back(&connection);
  }
  return can_sleep;
}

bool Mesh::arm() {
  bool can_sleep = true;
  if (dialer_ != nullptr && dialer_->is_busy()) {
    epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
    dialer_armed_ = ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, dialer_->descriptor(), &event) == 0;
  }
  for (Peer* peer : active_) {
    if (!arm(*peer)) can_sleep = false;
  }
  return can_sleep;
}

void Mesh::disarm() {
  if (std::exchange(dialer_armed_, false)) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, dialer_->descriptor(), nullptr);
  for (Connection* connection : armed_) {
    epoll_event event{.events = EPOLLRDHUP, .data = {.ptr = connection}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection->stream->descriptor(), &event);
    connection->armed = false;
  }
  armed_.clear();
}

void Mesh::check_peers() {
  epoll_event events[16];
  int count = ::epoll_wait(epoll_.get(), events, std::size(events), 0);
  for (int i = 0; i < count; i++) {
    auto* connection = static_cast<Connection*>(events[i].data.ptr);
    if (connection == nullptr || (events[i].events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) == 0) continue;
    int descriptor = connection->stream->descriptor();
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
    if ((events[i].events & EPOLLERR) != 0) tell(*connection->peer, error_of(descriptor));
  }
}

// TCP_USER_TIMEOUT would also end connections to peers that are alive but do not read.
void Mesh::find_unreachable(TimePoint now, Duration limit) {
  bool was_away = now - looked_at_ > limit / 2;  // this process was not scheduled and missed acknowledgements
  Duration since_look = now - looked_at_;
  looked_at_ = now;
  std::lock_guard lock(list_mutex_);
  for (auto& [rank, peer] : peers_) {
    for (Connection& connection : peer->connections) {
      if (was_away || !is_unanswered(connection.stream->descriptor(), since_look)) connection.answered_at = now;
      if (now - connection.answered_at < limit) continue;
      tell(*peer, {Code::peer_lost, fmt::format("its host has acknowledged no data for {:.1f} s",
                                                seconds_of(now - connection.answered_at))});
    }
  }
}

std::vector<Mesh::Traffic> Mesh::traffic() const {
  std::vector<Traffic> all;
  std::lock_guard lock(list_mutex_);
  for (const auto& [rank, peer] : peers_) {
    Traffic& traffic = all.emplace_back(Traffic{.peer = rank});
    for (const Connection& connection : peer->connections) count(traffic, connection.stream->descriptor());
    if (traffic.connections == 0) all.pop_back();
  }
  return all;
}

void Mesh::say_goodbye() {
  for (auto& [rank, peer] : peers_) {
    for (Connection& connection : peer->connections) set_linger(connection.stream->descriptor(), false);
  }
}

void Mesh::list_descriptors(std::vector<int>& into) const {
  std::lock_guard lock(list_mutex_);
  into.push_back(epoll_.get());
  if (dialer_ != nullptr) dialer_->list_descriptors(into);
  for (const auto& [rank, peer] : peers_) {
    for (const Connection& connection : peer->connections) into.push_back(connection.stream->descriptor());
  }
}

void Mesh::lose(Peer& peer, const Status& status) {
  peer.lost = true;
  peer.out.clear();
  peer.in.clear();
  tell(peer, status);
}

void Mesh::tell(Peer& peer, const Status& status) {
  if (!peer.told.exchange(true)) on_lost_(peer.rank, status);
}

}  // namespace hvd
