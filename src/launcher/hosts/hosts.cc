#include "launcher/hosts/hosts.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "base/number.h"
#include "launcher/hosts/local_names.h"

namespace hvd::launcher {
namespace {

constexpr int kMostSlots = 100000;
constexpr size_t kMostDescribed = 8;  // more would fill the terminal

// A leading dash would make ssh read a name as an option.
bool is_name(std::string_view text) {
  auto is_allowed = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '-'; };
  return !text.empty() && text.front() != '-' && std::all_of(text.begin(), text.end(), is_allowed);
}

bool is_ipv6(std::string_view text) {
  in6_addr address{};
  size_t scope = text.find('%');
  if (scope != std::string_view::npos && !is_name(text.substr(scope + 1))) return false;
  return ::inet_pton(AF_INET6, std::string(text.substr(0, scope)).c_str(), &address) == 1;
}

Status bad_host(std::string_view text, std::string_view why) {
  return invalid_argument(fmt::format("bad host '{}': {}", text, why));
}

}  // namespace

Result<Host> parse_host(std::string_view text) {
  Host host{.name = {}, .slots = 1};
  std::string_view rest = text;
  size_t at = rest.find('@');
  if (at != std::string_view::npos) {
    if (!is_name(rest.substr(0, at))) return bad_host(text, "expected USER@HOST:SLOTS, as in me@node1:4");
    host.user = rest.substr(0, at);
    rest.remove_prefix(at + 1);
  }
  if (rest.starts_with('[')) {
    size_t end = rest.find(']');
    if (end == std::string_view::npos || !is_ipv6(rest.substr(1, end - 1)))
      return bad_host(text, "expected an IPv6 address in the brackets, as in [fd00::1]:4");
    host.name = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
  } else {
    if (std::count(rest.begin(), rest.end(), ':') > 1)
      return bad_host(text, "write an IPv6 address in brackets, as in [fd00::1]:4");
    size_t end = std::min(rest.find(':'), rest.size());
    if (!is_name(rest.substr(0, end))) return bad_host(text, "expected NAME:SLOTS, as in node1:4");
    host.name = rest.substr(0, end);
    rest.remove_prefix(end);
  }
  if (rest.empty()) return host;
  host.slots = rest.starts_with(':') ? read_number<int>(rest.substr(1)).value_or(0) : 0;
  if (host.slots < 1 || host.slots > kMostSlots)
    return bad_host(text, fmt::format("expected NAME:SLOTS with 1 to {} slots, as in node1:4", kMostSlots));
  return host;
}

Result<std::vector<Host>> parse_hosts(std::string_view text, bool names_count) {
  std::vector<Host> hosts;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    auto host = parse_host(text.substr(begin, end - begin));
    if (!host.ok()) return host.status();
    if (Status status = merge_host(hosts, std::move(*host), names_count); !status.ok()) return status;
    begin = end + 1;
  }
  return hosts;
}

Status merge_host(std::vector<Host>& hosts, Host host, bool names_count) {
  auto same = std::find_if(hosts.begin(), hosts.end(), [&](const Host& other) { return other.name == host.name; });
  if (same == hosts.end() && !names_count && is_local(host))
    same = std::find_if(hosts.begin(), hosts.end(), [](const Host& other) { return is_local(other); });
  if (same == hosts.end()) {
    hosts.push_back(std::move(host));
    return {};
  }
  if (same->user != host.user)
    return bad_host(host.name, fmt::format("it is named with two users, '{}' and '{}'", same->user, host.user));
  same->slots += host.slots;
  if (same->slots > kMostSlots) return bad_host(host.name, fmt::format("it has more than {} slots", kMostSlots));
  return {};
}

bool is_local(const Host& host) {
  static const LocalNames kLocal = LocalNames::read();
  return kLocal.contains(host.name);
}

std::string describe(const std::vector<Host>& hosts) {
  std::string text;
  for (size_t i = 0; i < std::min(hosts.size(), kMostDescribed); ++i)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ", ", hosts[i].name, hosts[i].slots);
  if (hosts.size() > kMostDescribed) text += fmt::format(" and {} more", hosts.size() - kMostDescribed);
  return text;
}

Result<std::vector<Slot>> assign(const std::vector<Host>& hosts, int num_proc) {
  std::vector<Slot> slots;
  std::map<int, int> cross_sizes;  // by local rank
  for (const Host& host : hosts) {
    int local_size = std::min(host.slots, num_proc - static_cast<int>(slots.size()));
    for (int local_rank = 0; local_rank < local_size; ++local_rank) {
      slots.push_back({.host = host.name,
                       .rank = static_cast<int>(slots.size()),
                       .size = num_proc,
                       .local_rank = local_rank,
                       .local_size = local_size,
                       .cross_rank = cross_sizes[local_rank]++});
    }
  }
  if (static_cast<int>(slots.size()) < num_proc)
    return Status(Code::invalid_argument, fmt::format("{} processes requested, but the hosts have {} slots; "
                                                      "add slots with -H or lower -np",
                                                      num_proc, slots.size()));
  for (Slot& slot : slots) slot.cross_size = cross_sizes[slot.local_rank];
  return slots;
}

}  // namespace hvd::launcher
