#include "net/interfaces.h"

#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <memory>
#include <tuple>

#include "base/joined.h"

namespace hvd {
namespace {

int prefix_of(const sockaddr* mask, bool is_v6) {
  if (mask == nullptr) return is_v6 ? 128 : 32;
  const auto* bytes = is_v6 ? reinterpret_cast<const uint8_t*>(&reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr)
                            : reinterpret_cast<const uint8_t*>(&reinterpret_cast<const sockaddr_in*>(mask)->sin_addr);
  int bits = 0;
  for (int i = 0; i < (is_v6 ? 16 : 4); i++) bits += std::popcount(bytes[i]);
  return bits;
}

std::filesystem::path folder_of(const std::string& interface) { return "/sys/class/net/" + interface; }

int64_t speed_of(const std::string& interface) {
  int64_t speed = -1;
  std::ifstream(folder_of(interface) / "speed") >> speed;  // not readable for most virtual interfaces
  return speed > 0 ? speed : -1;
}

// A container's end of a virtual cable is called eth0 and is its real interface; only the host's end is named veth.
bool is_virtual(const std::string& interface) {
  for (const char* start : {"docker", "virbr", "veth", "br-", "cni", "flannel", "cali", "vnet", "lxcbr", "podman"}) {
    if (interface.starts_with(start)) return true;
  }
  return false;
}

bool is_named(const InterfaceAddress& address, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), address.interface) != names.end();
}

Status nothing_usable(const std::vector<InterfaceAddress>& all, const std::vector<std::string>& names) {
  std::vector<std::string> here;
  for (const InterfaceAddress& address : all) {
    if (here.empty() || here.back() != address.interface) here.push_back(address.interface);
  }
  std::string listed = here.empty() ? "none" : joined(here, ", ");
  if (names.empty()) return {Code::unknown, fmt::format("this host has no usable address (interfaces: {})", listed)};
  return {Code::invalid_argument,
          fmt::format("none of the network interfaces {} has a usable address here; this host has: {} "
                      "(--network-interfaces, HOROVOD_NETWORK_INTERFACES)",
                      joined(names, ", "), listed)};
}

}  // namespace

Result<std::vector<InterfaceAddress>> read_interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return system_error("cannot list the network interfaces", "");
  std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
  std::vector<InterfaceAddress> all;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    auto address = address_of(each->ifa_addr);
    if (!address.ok()) continue;
    all.push_back({.interface = each->ifa_name,
                   .ip = address->ip,
                   .prefix = prefix_of(each->ifa_netmask, address->ip.is_v6),
                   .speed = speed_of(each->ifa_name),
                   .is_virtual = is_virtual(each->ifa_name)});
  }
  return all;
}

Result<std::vector<InterfaceAddress>> usable_addresses(const std::vector<InterfaceAddress>& all,
                                                       const std::vector<std::string>& names) {
  std::vector<InterfaceAddress> usable;
  for (const InterfaceAddress& address : all) {
    bool left_out = address.ip.is_loopback() || (address.ip.is_link_local() && !address.ip.is_v6);
    if (names.empty() ? !left_out : is_named(address, names)) usable.push_back(address);
  }
  if (usable.empty() && names.empty()) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(usable),
                 [](const InterfaceAddress& address) { return address.ip.is_loopback(); });
  }
  if (usable.empty()) return nothing_usable(all, names);
  std::stable_sort(usable.begin(), usable.end(), [](const InterfaceAddress& a, const InterfaceAddress& b) {
    auto order = [](const InterfaceAddress& x) {
      return std::tuple(x.ip.is_loopback(), x.is_virtual, x.ip.is_link_local(), -x.speed, x.ip.is_v6);
    };
    return order(a) < order(b);
  });
  return usable;
}

std::vector<Endpoint> order_for_connecting(const std::vector<Endpoint>& peer,
                                           const std::vector<InterfaceAddress>& ours) {
  std::vector<Endpoint> reachable;
  for (const Endpoint& endpoint : peer) {
    if (!endpoint.address.ip.is_v6 || !endpoint.address.ip.is_link_local() || endpoint.address.ip.scope != 0) {
      reachable.push_back(endpoint);
      continue;
    }
    for (const InterfaceAddress& own : ours) {
      if (!own.ip.is_v6 || !own.ip.is_link_local()) continue;
      Endpoint scoped = endpoint;
      scoped.address.ip.scope = own.ip.scope;
      reachable.push_back(std::move(scoped));
    }
  }
  auto class_of = [&](const Endpoint& endpoint) {
    const IpAddress& ip = endpoint.address.ip;
    bool is_near = false, is_own = ip.is_loopback();
    for (const InterfaceAddress& own : ours) {
      is_own = is_own || own.ip == ip;
      is_near = is_near || (!own.is_virtual && !ip.is_link_local() && in_same_network(own.ip, ip, own.prefix));
    }
    return is_own ? 2 : is_near ? 0 : 1;
  };
  std::stable_sort(reachable.begin(), reachable.end(),
                   [&](const Endpoint& a, const Endpoint& b) { return class_of(a) < class_of(b); });
  return reachable;
}

}  // namespace hvd
