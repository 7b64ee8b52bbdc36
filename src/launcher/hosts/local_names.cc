#include "launcher/hosts/local_names.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/host_name.h"
#include "net/interfaces.h"

namespace hvd::launcher {
namespace {

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

// The scope (%eth0) is ignored.
Result<IpAddress> address_in(std::string_view text) { return parse_ip(text.substr(0, text.find('%'))); }

}  // namespace

LocalNames LocalNames::read(const std::string& hosts_file) {
  LocalNames local;
  local.names_ = {"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost"};
  if (std::string full = lower_case(host_name()); !full.empty()) {
    local.names_.insert(full.substr(0, full.find('.')));
    local.names_.insert(std::move(full));
  }
  local.add_interfaces();
  local.add_names_of(hosts_file);
  return local;
}

void LocalNames::add_interfaces() {
  auto interfaces = read_interfaces();
  if (!interfaces.ok()) return;
  for (InterfaceAddress& address : *interfaces) {
    address.ip.scope = 0;
    addresses_.push_back(address.ip);
  }
}

bool LocalNames::has(const IpAddress& ip) const {
  return std::find(addresses_.begin(), addresses_.end(), ip) != addresses_.end();
}

void LocalNames::add_names_of(const std::string& hosts_file) {
  std::ifstream file(hosts_file);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    // Loopback addresses prove nothing: many systems assign one to their own name only, some use them to block other
    // names.
    if (!(words >> word)) continue;
    auto address = address_in(word);
    if (!address.ok() || address->is_loopback() || !has(*address)) continue;
    while (words >> word) names_.insert(lower_case(word));
  }
}

bool LocalNames::contains(std::string_view name) const {
  auto address = address_in(name);
  if (!address.ok()) return names_.contains(lower_case(name));
  return address->is_loopback() || has(*address);
}

}  // namespace hvd::launcher
