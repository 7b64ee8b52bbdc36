#include "transport/mesh.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cassert>

namespace hvd {

Result<std::unique_ptr<Mesh>> Mesh::create(std::function<void(int32_t, const Status&)> on_lost) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return system_error("cannot create an epoll set", "");
  return std::unique_ptr<Mesh>(new Mesh(std::move(epoll), std::move(on_lost)));
}

Mesh::Mesh(UniqueFd epoll, std::function<void(int32_t, const Status&)> on_lost)
    : epoll_(std::move(epoll)), on_lost_(std::move(on_lost)) {}

void Mesh::add(int32_t peer, std::unique_ptr<Stream> stream) {
  auto& place = peers_[peer];
  assert(place == nullptr);
  place = std::make_unique<Peer>();
  place->rank = peer;
  place->stream = std::move(stream);
  place->watched = EPOLLRDHUP;
  epoll_event event{.events = place->watched, .data = {.ptr = place.get()}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, place->stream->descriptor(), &event);
}

void Mesh::activate(Peer& peer) {
  if (std::exchange(peer.active, true)) return;
  active_.push_back(&peer);
}

Mesh::Ticket Mesh::send(int32_t rank, ByteView bytes) {
  Peer& peer = peer_of(rank);
  peer.out_queued += bytes.size();
  if (!bytes.empty() && !peer.lost) {
    peer.out.push_back(bytes);
    activate(peer);
  }
  return {.peer = rank, .outgoing = true, .position = peer.out_queued};
}

Mesh::Ticket Mesh::receive(int32_t rank, std::span<std::byte> bytes) {
  Peer& peer = peer_of(rank);
  peer.in_queued += bytes.size();
  if (!bytes.empty() && !peer.lost) {
    peer.in.push_back(bytes);
    activate(peer);
  }
  return {.peer = rank, .outgoing = false, .position = peer.in_queued};
}

bool Mesh::is_done(const Ticket& ticket) const {
  if (ticket.peer < 0) return true;
  const Peer& peer = *peers_.at(ticket.peer);
  return (ticket.outgoing ? peer.out_done : peer.in_done) >= ticket.position;
}

bool Mesh::move_out(Peer& peer) {
  bool moved = false;
  while (!peer.out.empty() && !peer.lost) {
    ByteView& bytes = peer.out.front();
    auto sent = peer.stream->write(bytes);
    if (!sent.ok()) {
      lose(peer, sent.status());
      break;
    }
    if (*sent == 0) break;
    moved = true;
    peer.out_done += *sent;
    bytes = bytes.subspan(*sent);
    if (bytes.empty()) peer.out.pop_front();
  }
  return moved;
}

bool Mesh::move_in(Peer& peer) {
  bool moved = false;
  while (!peer.in.empty() && !peer.lost) {
    std::span<std::byte>& bytes = peer.in.front();
    auto got = peer.stream->read(bytes);
    if (!got.ok()) {
      lose(peer, got.status());
      break;
    }
    if (*got == 0) break;
    moved = true;
    peer.in_done += *got;
    bytes = bytes.subspan(*got);
    if (bytes.empty()) peer.in.pop_front();
  }
  return moved;
}

// A peer may send before this rank has asked for it, so its bytes wake nobody until then; its end always does.
void Mesh::watch(Peer& peer) {
  uint32_t wanted = EPOLLRDHUP | (peer.in.empty() ? 0u : EPOLLIN) | (peer.out.empty() ? 0u : EPOLLOUT);
  if (peer.lost || wanted == peer.watched) return;
  peer.watched = wanted;
  epoll_event event{.events = wanted, .data = {.ptr = &peer}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, peer.stream->descriptor(), &event);
}

bool Mesh::progress() {
  bool moved = false;
  for (size_t i = 0; i < active_.size();) {
    Peer& peer = *active_[i];
    if (move_out(peer)) moved = true;
    if (move_in(peer)) moved = true;
    watch(peer);
    if (peer.out.empty() && peer.in.empty()) {
      peer.active = false;
      active_[i] = active_.back();
      active_.pop_back();
    } else {
      i++;
    }
  }
  return moved;
}

void Mesh::lose(Peer& peer, const Status& status) {
  peer.lost = true;
  peer.out.clear();
  peer.in.clear();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer.stream->descriptor(), nullptr);
  on_lost_(peer.rank, status);
}

}  // namespace hvd
