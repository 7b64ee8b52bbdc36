// TCP sockets as this project uses them: never blocking, closed on exec. Thread rule: any thread.
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
  static constexpr Duration kPatient{};  // as long as the host's TCP does by itself

  // Data that the peer's host does not acknowledge, or that the peer has no room for, for so long ends the connection.
  Duration user_timeout = seconds(30);
  Duration keep_alive = seconds(10);  // an idle connection is probed this often
  int buffer_bytes = 0;               // 0: the kernel chooses, and adapts
  std::string congestion;             // algorithm; empty, or one that this host does not have: the host's default
};

Status set_options(const UniqueFd& socket, const SocketOptions& options);

struct PortRange {
  uint16_t first = 0, last = 0;  // 0: any free port
};

// Sockets that listen on one port, and the endpoints to publish for it.
struct Listener {
  std::vector<UniqueFd> sockets;
  std::vector<Endpoint> endpoints;
  uint16_t port = 0;
};

// Listens on all interfaces, IPv6 and IPv4, when `interfaces` is empty; otherwise only on their addresses.
Result<Listener> listen_on(const std::vector<std::string>& interfaces, PortRange ports = {});
Result<Listener> listen_on(const std::vector<IpAddress>& addresses, PortRange ports = {});  // exactly these

// Starts to connect; writability tells the end of it, and connect_error() its result: 0, or an errno. The error of a
// start that fails at once is the reason alone ("Network is unreachable").
Result<UniqueFd> start_connect(const SocketAddress& address, const SocketOptions& options);
int connect_error(const UniqueFd& socket);

}  // namespace hvd
