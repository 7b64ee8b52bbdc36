#include "launcher/hosts/local_names.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <sstream>
#include <utility>

namespace hvd {
namespace {

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

std::string text_of(int family, const void* address) {
  std::array<char, INET6_ADDRSTRLEN> buffer{};
  return ::inet_ntop(family, address, buffer.data(), buffer.size()) ? buffer.data() : "";
}

// An address in the one form that can be compared; empty if it is none. The scope (%eth0) does not matter.
std::string normal_address(std::string_view text) {
  std::string address(text.substr(0, text.find('%')));
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  for (int family : {AF_INET, AF_INET6})
    if (::inet_pton(family, address.c_str(), bytes.data()) == 1) return text_of(family, bytes.data());
  return "";
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

}  // namespace

LocalNames LocalNames::read(const std::string& hosts_file) {
  LocalNames local;
  local.names_ = {"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost"};
  std::array<char, HOST_NAME_MAX + 1> buffer{};
  if (::gethostname(buffer.data(), buffer.size() - 1) == 0 && buffer[0] != '\0') {
    std::string full = lower_case(buffer.data());
    local.names_.insert(full.substr(0, full.find('.')));
    local.names_.insert(std::move(full));
  }
  local.add_interfaces();
  local.add_names_of(hosts_file);
  return local;
}

void LocalNames::add_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return;
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr) continue;
    if (entry->ifa_addr->sa_family == AF_INET)
      addresses_.insert(text_of(AF_INET, &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr));
    if (entry->ifa_addr->sa_family == AF_INET6)
      addresses_.insert(text_of(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr));
  }
  ::freeifaddrs(list);
}

void LocalNames::add_names_of(const std::string& hosts_file) {
  std::ifstream file(hosts_file);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    // Loopback addresses say nothing: many systems give one to their own name only, some to block other names.
    if (!(words >> word) || is_loopback(normal_address(word)) || !addresses_.contains(normal_address(word))) continue;
    while (words >> word) names_.insert(lower_case(word));
  }
}

bool LocalNames::contains(std::string_view name) const {
  std::string address = normal_address(name);
  if (address.empty()) return names_.contains(lower_case(name));
  return is_loopback(address) || addresses_.contains(address);
}

}  // namespace hvd
