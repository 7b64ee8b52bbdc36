#include "nccl/exchange.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>

namespace standin::nccl {
namespace {

constexpr int kLookMs = 2;                        // how often a wait looks for an abort
constexpr std::chrono::milliseconds kStuck{100};  // how long nothing moves before `stuck` is called
constexpr size_t kAtOnce = size_t{1} << 20;

}  // namespace

void Exchange::send(int peer, const void* bytes, size_t count) {
  if (count == 0) return;
  outgoing_[peer].push_back({static_cast<char*>(const_cast<void*>(bytes)), count, nullptr});
}

void Exchange::receive(int peer, void* bytes, size_t count, std::function<void()> arrived) {
  if (count == 0) return;
  incoming_[peer].push_back({static_cast<char*>(bytes), count, std::move(arrived)});
}

void Exchange::finish(std::deque<Piece>& pieces) {
  if (pieces.front().left > 0) return;
  const auto arrived = std::move(pieces.front().arrived);
  pieces.pop_front();
  if (arrived) arrived();
}

bool Exchange::move(size_t peer, short events) {
  const bool out = (events & POLLOUT) != 0;
  auto& pieces = out ? outgoing_[peer] : incoming_[peer];
  Piece& piece = pieces.front();
  const int socket = communicator_.links[peer].data.get();
  const size_t count = std::min(piece.left, kAtOnce);
  const ssize_t moved = out ? ::send(socket, piece.bytes, count, MSG_NOSIGNAL) : ::recv(socket, piece.bytes, count, 0);
  if (moved <= 0) {
    if (moved == 0 || (errno != EAGAIN && errno != EINTR)) dead_[peer] = true;  // stays stuck, as a kernel does
    return false;
  }
  piece.bytes += moved;
  piece.left -= static_cast<size_t>(moved);
  finish(pieces);
  return true;
}

std::vector<int> Exchange::missing() const {
  std::vector<int> peers;
  for (size_t peer = 0; peer < incoming_.size(); ++peer)
    if ((!incoming_[peer].empty() || !outgoing_[peer].empty()) && !dead_[peer]) peers.push_back(static_cast<int>(peer));
  return peers;
}

bool Exchange::run(const std::function<void(const std::vector<int>&)>& stuck) {
  auto moved_at = std::chrono::steady_clock::now();
  for (;;) {
    if (communicator_.aborted) return false;
    bool moved = false, left = false;
    std::vector<pollfd> polls;
    for (size_t peer = 0; peer < incoming_.size(); ++peer) {
      for (const short events : {short{POLLIN}, short{POLLOUT}}) {
        auto& pieces = events == POLLIN ? incoming_[peer] : outgoing_[peer];
        while (!dead_[peer] && !pieces.empty() && move(peer, events)) moved = true;
        if (pieces.empty()) continue;
        left = true;
        if (!dead_[peer]) polls.push_back({.fd = communicator_.links[peer].data.get(), .events = events, .revents = 0});
      }
    }
    if (!left) return true;
    const auto now = std::chrono::steady_clock::now();
    if (moved) moved_at = now;
    if (now - moved_at >= kStuck && stuck) {
      stuck(missing());
      moved_at = now;
    }
    ::poll(polls.data(), polls.size(), kLookMs);
  }
}

}  // namespace standin::nccl
