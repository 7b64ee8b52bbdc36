#include "transport/peers.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace hvd {
namespace {

constexpr char kGoodbye = 'B';

}  // namespace

Peers::Peers(const HostGroup& group, const Sleeper& sleeper, std::function<void(int32_t)> on_lost)
    : group_(group),
      sleeper_(sleeper),
      on_lost_(std::move(on_lost)),
      departed_(static_cast<size_t>(group.size)),
      closed_(static_cast<size_t>(group.size)) {}

void Peers::check() {
  if (mesh_ != nullptr) mesh_->check_peers();
  std::lock_guard lock(mutex_);
  for (size_t peer = 0; peer < group_.sockets.size(); peer++) {
    const UniqueFd& socket = group_.sockets[peer];
    if (!socket || closed_[peer]) continue;
    char byte = 0;
    ssize_t got = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got == 1 && byte == kGoodbye) {
      departed_[peer] = true;
      continue;  // the end follows, with the next event
    }
    closed_[peer] = true;
    sleeper_.forget(socket);
    if (!departed_[peer] && !departures_expected_) on_lost_(static_cast<int32_t>(peer));
  }
}

void Peers::say_goodbye() {
  for (const UniqueFd& socket : group_.sockets) {
    if (socket) ::send(socket.get(), &kGoodbye, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  if (mesh_ != nullptr) mesh_->say_goodbye();
}

}  // namespace hvd
