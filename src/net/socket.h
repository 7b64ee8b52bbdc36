// TCP sockets of this project: non-blocking, closed on exec. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "net/address.h"

namespace hvd {

struct SocketOptions {
  static constexpr Duration kPatient{};  // the default of the host's TCP

  // The connection ends after data was not acknowledged by the peer's host, or had no room at the peer, for this time.
  Duration user_timeout = seconds(30);
  Duration keep_alive = seconds(10);  // interval of probes on an idle connection
  int buffer_bytes = 0;               // 0: chosen and adapted by the kernel
  std::string congestion;             // algorithm; empty, or one that this host does not have: the host's default
};

Status set_options(const UniqueFd& socket, const SocketOptions& options);

struct PortRange {
  uint16_t first = 0, last = 0;  // 0: any free port
};

// Sockets that listen on one port, and their endpoints to publish.
struct Listener {
  std::vector<UniqueFd> sockets;
  std::vector<Endpoint> endpoints;
  uint16_t port = 0;
};

// Listens on all interfaces, IPv6 and IPv4, if `interfaces` is empty; otherwise only on their addresses.
Result<Listener> listen_on(const std::vector<std::string>& interfaces, PortRange ports = {});
Result<Listener> listen_on(const std::vector<IpAddress>& addresses, PortRange ports = {});  // only these

// Starts to connect; the socket becomes writable when that ends, and connect_error() has the result: 0, or an errno. An
// immediate error is returned as the reason alone ("Network is unreachable").
Result<UniqueFd> start_connect(const SocketAddress& address, const SocketOptions& options);
int connect_error(const UniqueFd& socket);

}  // namespace hvd
