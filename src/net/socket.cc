#include "net/socket.h"

#include <fmt/core.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <limits>

#include "base/log.h"
#include "net/congestion.h"
#include "net/interfaces.h"

namespace hvd {
namespace {

constexpr int kBacklog = 1024;
constexpr int kPortTries = 32;  // attempts to find a port that is free on every address

int milliseconds_of(Duration duration) {
  auto count = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  return static_cast<int>(std::min<int64_t>(count, std::numeric_limits<int>::max()));
}

bool set_int(const UniqueFd& socket, int level, int name, int value) {
  return ::setsockopt(socket.get(), level, name, &value, sizeof value) == 0;
}

// `dual`: an IPv6 socket that also accepts IPv4.
Result<UniqueFd> listen_at(const SocketAddress& address, bool dual) {
  UniqueFd socket(::socket(address.ip.is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error("cannot create a socket for", to_text(address));
  RawAddress raw = raw_of(address);
  if (!set_int(socket, SOL_SOCKET, SO_REUSEADDR, 1) ||
      (address.ip.is_v6 && !set_int(socket, IPPROTO_IPV6, IPV6_V6ONLY, dual ? 0 : 1)) ||
      ::bind(socket.get(), raw.get(), raw.length) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    return system_error("cannot listen on", to_text(address));
  }
  return socket;
}

// Whether an address cannot be bound with any port.
bool is_missing(const IpAddress& ip) { return !listen_at({.ip = ip}, false).ok(); }

Result<uint16_t> port_of(const UniqueFd& socket) {
  RawAddress raw;
  if (::getsockname(socket.get(), raw.get(), &raw.length) != 0) return system_error("cannot read a socket's port", "");
  auto address = address_of(raw.get());
  if (!address.ok()) return address.status();
  return address->port;
}

Result<Listener> listen_everywhere(uint16_t port) {
  const IpAddress any{.is_v6 = true};
  auto both = listen_at({.ip = any, .port = port}, true);
  if (!both.ok() && is_missing(any)) both = listen_at({.port = port}, false);  // a host without IPv6
  if (!both.ok()) return both.status();
  Listener listener;
  listener.sockets.push_back(std::move(*both));
  return listener;
}

// `skip_bad`: skip addresses that cannot be used at the moment (IPv6 checks for duplicates first).
Result<Listener> listen_each(const std::vector<IpAddress>& addresses, uint16_t port, bool skip_bad) {
  if (addresses.empty()) return Status(Code::invalid_argument, "no address to listen on");
  Listener listener;
  std::string problem;
  for (const IpAddress& ip : addresses) {
    auto socket = listen_at({.ip = ip, .port = port}, false);
    if (!socket.ok()) {
      if (!skip_bad || !is_missing(ip)) return socket.status();
      problem = socket.status().message();
      log_warning("{}; using the other addresses", problem);
      continue;
    }
    if (port == 0) {
      auto chosen = port_of(*socket);
      if (!chosen.ok()) return chosen.status();
      port = *chosen;
    }
    listener.sockets.push_back(std::move(*socket));
    listener.endpoints.push_back({.address = {.ip = ip, .port = port}});
  }
  if (listener.sockets.empty()) return Status(Code::unknown, problem);
  return listener;
}

// Tries the ports of the range in order; `attempt` creates the sockets for one.
Result<Listener> try_ports(PortRange ports, const std::function<Result<Listener>(uint16_t port)>& attempt) {
  int tries = ports.first == 0 ? kPortTries : ports.last - ports.first + 1;
  Status problem(Code::invalid_argument, fmt::format("ports {} to {} are not a valid range", ports.first, ports.last));
  for (int i = 0; i < tries; i++) {
    auto listener = attempt(static_cast<uint16_t>(ports.first == 0 ? 0 : ports.first + i));
    if (!listener.ok()) {
      problem = listener.status();
      continue;
    }
    auto port = port_of(listener->sockets.front());
    if (!port.ok()) return port.status();
    listener->port = *port;
    return listener;
  }
  return problem;
}

}  // namespace

Status set_options(const UniqueFd& socket, const SocketOptions& options) {
  int idle = std::max(1, milliseconds_of(options.keep_alive) / 1000);
  bool done = set_int(socket, IPPROTO_TCP, TCP_NODELAY, 1) && set_int(socket, SOL_SOCKET, SO_KEEPALIVE, 1) &&
              set_int(socket, IPPROTO_TCP, TCP_KEEPIDLE, idle) && set_int(socket, IPPROTO_TCP, TCP_KEEPINTVL, idle) &&
              set_int(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, milliseconds_of(options.user_timeout));
  if (done && options.buffer_bytes > 0) {
    done = set_int(socket, SOL_SOCKET, SO_SNDBUF, options.buffer_bytes) &&
           set_int(socket, SOL_SOCKET, SO_RCVBUF, options.buffer_bytes);
  }
  if (!done) return system_error("cannot set the options of a TCP socket", "");
  set_congestion(socket.get(), options.congestion);
  return {};
}

Result<Listener> listen_on(const std::vector<std::string>& interfaces, PortRange ports) {
  auto all = read_interfaces();
  if (!all.ok()) return all.status();
  auto usable = usable_addresses(*all, interfaces);
  if (!usable.ok()) return usable.status();
  std::vector<IpAddress> addresses;
  for (const InterfaceAddress& address : *usable) addresses.push_back(address.ip);
  auto listener = try_ports(ports, [&](uint16_t port) {
    return interfaces.empty() ? listen_everywhere(port) : listen_each(addresses, port, true);
  });
  if (!listener.ok()) return listener.status();
  if (interfaces.empty()) {
    for (const IpAddress& ip : addresses) {
      listener->endpoints.push_back({.address = {.ip = ip, .port = listener->port}});
    }
  }
  for (Endpoint& endpoint : listener->endpoints) {
    for (const InterfaceAddress& address : *usable) {
      if (address.ip == endpoint.address.ip) endpoint.interface = address.interface;
    }
  }
  return listener;
}

Result<Listener> listen_on(const std::vector<IpAddress>& addresses, PortRange ports) {
  return try_ports(ports, [&](uint16_t port) { return listen_each(addresses, port, false); });
}

Result<UniqueFd> start_connect(const SocketAddress& address, const SocketOptions& options) {
  UniqueFd socket(::socket(address.ip.is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error("cannot create a socket for", to_text(address));
  if (Status status = set_options(socket, options); !status.ok()) return status;
  RawAddress raw = raw_of(address);
  if (::connect(socket.get(), raw.get(), raw.length) != 0 && errno != EINPROGRESS) {
    return Status(Code::unknown, std::strerror(errno));
  }
  return socket;
}

int connect_error(const UniqueFd& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

}  // namespace hvd
