// Socket addresses as values. Thread rule: plain values; resolve() blocks.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/wire.h"

namespace hvd {

// An IPv4 or IPv6 address. IPv4 is kept in the first four bytes; an IPv4 address mapped into IPv6 becomes plain IPv4.
struct IpAddress {
  bool is_v6 = false;
  std::array<uint8_t, 16> bytes{};
  uint32_t scope = 0;  // index of this host's interface, only for link-local IPv6; meaningless on other hosts

  auto operator<=>(const IpAddress&) const = default;
  bool is_loopback() const;
  bool is_link_local() const;
  bool is_any() const;
};

// Whether both are in the same network of `prefix` bits.
bool in_same_network(const IpAddress& a, const IpAddress& b, int prefix);

struct SocketAddress {
  IpAddress ip;
  uint16_t port = 0;

  auto operator<=>(const SocketAddress&) const = default;
};

// An address of a process, as it publishes it.
struct Endpoint {
  SocketAddress address;
  std::string interface;  // of the publishing host; for messages

  bool operator==(const Endpoint&) const = default;
};

std::string to_text(const IpAddress& ip);           // 10.0.0.2, fd00::2, fe80::1%eth0
std::string to_text(const SocketAddress& address);  // 10.0.0.2:4711, [fd00::2]:4711
std::string to_text(const Endpoint& endpoint);      // 10.0.0.2:4711 (eth0)
Result<IpAddress> parse_ip(std::string_view text);  // also with a scope: fe80::1%eth0, fe80::1%2
Result<SocketAddress> parse_socket_address(std::string_view text);

// For system calls; `ip_of` and `address_of` convert what the kernel wrote.
struct RawAddress {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_storage);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
RawAddress raw_of(const SocketAddress& address);
Result<SocketAddress> address_of(const sockaddr* raw);  // not ok: neither IPv4 nor IPv6

// All addresses of a host name; `hosts` may list several names or addresses, separated by commas.
Result<std::vector<Endpoint>> resolve(std::string_view hosts, uint16_t port);

// The published form of endpoints. Scopes are omitted: they are valid only on the publishing host.
void encode(Encoder& out, const std::vector<Endpoint>& endpoints);
Result<std::vector<Endpoint>> decode_endpoints(ByteView bytes);

}  // namespace hvd
