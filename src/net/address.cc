#include "net/address.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <cstring>

#include "base/number.h"

namespace hvd {
namespace {

constexpr size_t kMostEndpoints = 256;
constexpr size_t kLongestName = 64;

constexpr std::array<uint8_t, 12> kMappedPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

size_t length_of(const IpAddress& ip) { return ip.is_v6 ? 16 : 4; }

Status not_an_address(std::string_view text) {
  return {Code::invalid_argument, fmt::format("'{}' is not an IP address", text)};
}

uint32_t scope_of(std::string_view text) {
  if (auto index = read_number<uint32_t>(text)) return *index;
  return ::if_nametoindex(std::string(text).c_str());
}

IpAddress ipv4(const void* bytes) {
  IpAddress ip;
  std::memcpy(ip.bytes.data(), bytes, 4);
  return ip;
}

IpAddress ipv6(const void* bytes, uint32_t scope) {
  if (std::memcmp(bytes, kMappedPrefix.data(), kMappedPrefix.size()) == 0) {
    return ipv4(static_cast<const uint8_t*>(bytes) + kMappedPrefix.size());
  }
  IpAddress ip{.is_v6 = true};
  std::memcpy(ip.bytes.data(), bytes, 16);
  if (ip.is_link_local()) ip.scope = scope;
  return ip;
}

}  // namespace

bool IpAddress::is_loopback() const {
  if (!is_v6) return bytes[0] == 127;
  return bytes[15] == 1 && std::all_of(bytes.begin(), bytes.end() - 1, [](uint8_t b) { return b == 0; });
}

bool IpAddress::is_link_local() const {
  return is_v6 ? bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80 : bytes[0] == 169 && bytes[1] == 254;
}

bool IpAddress::is_any() const {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
}

bool in_same_network(const IpAddress& a, const IpAddress& b, int prefix) {
  if (a.is_v6 != b.is_v6) return false;
  for (size_t i = 0; i < length_of(a) && prefix > 0; i++, prefix -= 8) {
    int mask = prefix >= 8 ? 0xff : 0xff00 >> prefix & 0xff;
    if (((a.bytes[i] ^ b.bytes[i]) & mask) != 0) return false;
  }
  return true;
}

std::string to_text(const IpAddress& ip) {
  char text[INET6_ADDRSTRLEN];
  ::inet_ntop(ip.is_v6 ? AF_INET6 : AF_INET, ip.bytes.data(), text, sizeof text);
  if (ip.scope == 0) return text;
  char name[IF_NAMESIZE];
  if (::if_indextoname(ip.scope, name) == nullptr) return fmt::format("{}%{}", text, ip.scope);
  return fmt::format("{}%{}", text, name);
}

std::string to_text(const SocketAddress& address) {
  if (address.ip.is_v6) return fmt::format("[{}]:{}", to_text(address.ip), address.port);
  return fmt::format("{}:{}", to_text(address.ip), address.port);
}

std::string to_text(const Endpoint& endpoint) {
  if (endpoint.interface.empty()) return to_text(endpoint.address);
  return fmt::format("{} ({})", to_text(endpoint.address), endpoint.interface);
}

Result<IpAddress> parse_ip(std::string_view text) {
  std::array<uint8_t, 16> bytes{};
  size_t percent = text.find('%');
  std::string digits(text.substr(0, percent));
  if (percent == std::string_view::npos && ::inet_pton(AF_INET, digits.c_str(), bytes.data()) == 1) {
    return ipv4(bytes.data());
  }
  if (::inet_pton(AF_INET6, digits.c_str(), bytes.data()) != 1) return not_an_address(text);
  if (percent == std::string_view::npos) return ipv6(bytes.data(), 0);
  uint32_t scope = scope_of(text.substr(percent + 1));
  IpAddress ip = ipv6(bytes.data(), scope);
  if (scope == 0 || ip.scope == 0) {
    return Status(Code::invalid_argument, fmt::format("'{}': no such interface, or not a link-local address", text));
  }
  return ip;
}

Result<SocketAddress> parse_socket_address(std::string_view text) {
  size_t colon = text.rfind(':');
  SocketAddress address;
  auto port = read_number<uint16_t>(colon == std::string_view::npos ? "" : text.substr(colon + 1));
  if (!port) {
    return Status(Code::invalid_argument, fmt::format("'{}' does not end with a port (10.0.0.2:4711)", text));
  }
  address.port = *port;
  std::string_view host = text.substr(0, colon);
  bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  auto ip = parse_ip(host);
  if (!ip.ok()) return ip.status();
  if (ip->is_v6 && !bracketed) {
    return Status(Code::invalid_argument,
                  fmt::format("'{}': an IPv6 address with a port is written [{}]:{}", text, host, address.port));
  }
  address.ip = *ip;
  return address;
}

RawAddress raw_of(const SocketAddress& address) {
  RawAddress raw;
  if (address.ip.is_v6) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port);
    v6.sin6_scope_id = address.ip.scope;
    std::memcpy(&v6.sin6_addr, address.ip.bytes.data(), sizeof v6.sin6_addr);
    std::memcpy(&raw.storage, &v6, sizeof v6);
    raw.length = sizeof v6;
  } else {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(address.port);
    std::memcpy(&v4.sin_addr, address.ip.bytes.data(), sizeof v4.sin_addr);
    std::memcpy(&raw.storage, &v4, sizeof v4);
    raw.length = sizeof v4;
  }
  return raw;
}

Result<SocketAddress> address_of(const sockaddr* raw) {
  if (raw->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, raw, sizeof v4);
    return SocketAddress{.ip = ipv4(&v4.sin_addr), .port = ntohs(v4.sin_port)};
  }
  if (raw->sa_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, raw, sizeof v6);
    return SocketAddress{.ip = ipv6(&v6.sin6_addr, v6.sin6_scope_id), .port = ntohs(v6.sin6_port)};
  }
  return Status(Code::invalid_argument, "neither an IPv4 nor an IPv6 address");
}

Result<std::vector<Endpoint>> resolve(std::string_view hosts, uint16_t port) {
  std::vector<Endpoint> endpoints;
  while (!hosts.empty()) {
    std::string host(hosts.substr(0, hosts.find(',')));
    hosts.remove_prefix(std::min(host.size() + 1, hosts.size()));
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
      return Status(Code::invalid_argument,
                    fmt::format("cannot find the address of host '{}': {}", host,
                                error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error)));
    }
    for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
      auto address = address_of(each->ai_addr);
      if (!address.ok()) continue;
      Endpoint endpoint{.address = {.ip = address->ip, .port = port}};
      if (std::find(endpoints.begin(), endpoints.end(), endpoint) == endpoints.end()) endpoints.push_back(endpoint);
    }
    ::freeaddrinfo(found);
  }
  if (endpoints.empty()) return Status(Code::invalid_argument, "no host to find an address of");
  return endpoints;
}

void encode(Encoder& out, const std::vector<Endpoint>& endpoints) {
  size_t count = std::min(endpoints.size(), kMostEndpoints);
  out.varint(count);
  for (size_t i = 0; i < count; i++) {
    const auto& [address, interface] = endpoints[i];
    out.u8(address.ip.is_v6 ? 6 : 4);
    out.bytes(std::as_bytes(std::span(address.ip.bytes)).first(length_of(address.ip)));
    out.varint(address.port);
    out.text(std::string_view(interface).substr(0, kLongestName));
  }
}

Result<std::vector<Endpoint>> decode_endpoints(ByteView bytes) {
  Decoder in(bytes);
  std::vector<Endpoint> endpoints;
  size_t count = in.count(7);
  if (count > kMostEndpoints) in.fail();
  for (size_t i = 0; i < count && in.ok(); i++) {
    Endpoint endpoint;
    uint8_t version = in.u8();
    if (version != 4 && version != 6) in.fail();
    ByteView ip = in.bytes(version == 6 ? 16 : 4);
    uint64_t port = in.varint();
    std::string_view interface = in.text();
    if (port > 65535 || interface.size() > kLongestName) in.fail();
    if (!in.ok()) break;
    endpoint.address.ip = version == 6 ? ipv6(ip.data(), 0) : ipv4(ip.data());
    endpoint.address.port = static_cast<uint16_t>(port);
    endpoint.interface = interface;
    endpoints.push_back(std::move(endpoint));
  }
  if (!in.ok() || !in.at_end()) return Status(Code::invalid_argument, "the published addresses cannot be read");
  return endpoints;
}

}  // namespace hvd
