#include "launcher/mpi/networks.h"

#include <fmt/core.h>

#include <algorithm>

namespace hvd {
namespace {

// "10.77.0.0/24" of 10.77.0.1
std::string network_text(const InterfaceAddress& address) {
  IpAddress network = address.ip;
  for (int bit = address.prefix; bit < 32; ++bit)
    network.bytes[static_cast<size_t>(bit / 8)] &= static_cast<uint8_t>(~(0x80 >> bit % 8));
  return fmt::format("{}/{}", to_text(network), address.prefix);
}

}  // namespace

std::vector<std::string> networks_of(const std::vector<std::string>& names, const std::vector<InterfaceAddress>& all) {
  std::vector<std::string> networks;
  bool has_all = true;
  for (const std::string& name : names) {
    bool has_name = false;
    for (const InterfaceAddress& address : all) {
      if (address.interface != name) continue;
      has_name = true;
      if (!address.ip.is_v6) networks.push_back(network_text(address));
    }
    has_all = has_all && has_name;
  }
  return has_all || networks.empty() ? names : networks;
}

}  // namespace hvd
