#include "nccl/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace standin::nccl {
namespace {

constexpr int kLookMs = 5;  // how often a wait asks whether to stop

bool wanted(const char* interface) {
  const char* names = std::getenv("NCCL_SOCKET_IFNAME");
  if (names == nullptr || *names == 0 || *names == '^') return std::strcmp(interface, "lo") == 0;
  std::string_view list = *names == '=' ? names + 1 : names;
  while (!list.empty()) {
    const std::string_view name = list.substr(0, list.find(','));
    if (std::string_view(interface).starts_with(name)) return true;
    list.remove_prefix(std::min(list.size(), name.size() + 1));
  }
  return false;
}

uint32_t own_ip() {
  uint32_t ip = htonl(INADDR_LOOPBACK);
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return ip;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || !wanted(one->ifa_name)) continue;
    ip = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr.s_addr;
    break;
  }
  ::freeifaddrs(all);
  return ip;
}

sockaddr_in to_sockaddr(const Address& address) {
  sockaddr_in full{};
  full.sin_family = AF_INET;
  full.sin_addr.s_addr = address.ip;
  full.sin_port = address.port;
  return full;
}

void prepare(int descriptor) {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::fcntl(descriptor, F_SETFL, O_NONBLOCK);
}

// False if `stop` said so.
bool wait_until_ready(int descriptor, short events, const Stop& stop) {
  pollfd poll{.fd = descriptor, .events = events, .revents = 0};
  for (;;) {
    if (::poll(&poll, 1, kLookMs) > 0) return true;
    if (stop()) return false;
  }
}

template <typename Move>
bool move_all(int descriptor, size_t count, short events, const Stop& stop, Move move) {
  for (size_t done = 0; done < count;) {
    const ssize_t moved = move(done);
    if (moved > 0) {
      done += static_cast<size_t>(moved);
    } else if (moved == 0 || (errno != EAGAIN && errno != EINTR) || !wait_until_ready(descriptor, events, stop)) {
      return false;
    }
  }
  return true;
}

}  // namespace

void Socket::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

Socket listen_anywhere(Address* address) {
  Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in full = to_sockaddr({.ip = own_ip(), .port = 0});
  socklen_t size = sizeof full;
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&full), size) != 0 || ::listen(listener.get(), 256) != 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&full), &size) != 0)
    listener.close();
  *address = {.ip = full.sin_addr.s_addr, .port = full.sin_port};
  return listener;
}

Socket connect_to(const Address& address, const Stop& stop) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_in full = to_sockaddr(address);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&full), sizeof full) != 0 &&
      (errno != EINPROGRESS || !wait_until_ready(socket.get(), POLLOUT, stop)))
    return Socket();
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return Socket();
  prepare(socket.get());
  return socket;
}

Socket accept_from(const Socket& listener, const Stop& stop) {
  if (!wait_until_ready(listener.get(), POLLIN, stop)) return Socket();
  Socket socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket.get() >= 0) prepare(socket.get());
  return socket;
}

bool send_all(const Socket& socket, const void* bytes, size_t count, const Stop& stop) {
  return move_all(socket.get(), count, POLLOUT, stop, [&](size_t done) {
    return ::send(socket.get(), static_cast<const char*>(bytes) + done, count - done, MSG_NOSIGNAL);
  });
}

bool receive_all(const Socket& socket, void* bytes, size_t count, const Stop& stop) {
  return move_all(socket.get(), count, POLLIN, stop,
                  [&](size_t done) { return ::recv(socket.get(), static_cast<char*>(bytes) + done, count - done, 0); });
}

}  // namespace standin::nccl
