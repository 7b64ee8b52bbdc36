#include "launcher/hosts.h"

#include <fmt/core.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace hvd {
namespace {

bool is_host_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
}

Result<Host> parse_host(std::string_view text) {
  size_t colon = text.find(':');
  std::string_view name = text.substr(0, colon);
  std::string_view slots = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  Host host{.name = std::string(name)};
  auto [end, error] = std::from_chars(slots.data(), slots.data() + slots.size(), host.slots);
  bool number = !slots.empty() && error == std::errc() && end == slots.data() + slots.size() && host.slots > 0;
  if (name.empty() || !std::all_of(name.begin(), name.end(), is_host_character) || !number)
    return Status(Code::invalid_argument, fmt::format("bad host '{}': expected NAME:SLOTS, as in localhost:4", text));
  return host;
}

}  // namespace

Result<std::vector<Host>> parse_hosts(std::string_view text) {
  std::vector<Host> hosts;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    auto host = parse_host(text.substr(begin, end - begin));
    if (!host.ok()) return host.status();
    auto same = std::find_if(hosts.begin(), hosts.end(), [&](const Host& other) {
      return other.name == host->name || (is_local(other) && is_local(*host));
    });
    if (same == hosts.end()) {
      hosts.push_back(*host);
    } else {
      same->slots += host->slots;
    }
    begin = end + 1;
  }
  return hosts;
}

bool is_local(const Host& host) {
  char buffer[HOST_NAME_MAX + 1] = {};
  if (::gethostname(buffer, sizeof buffer - 1) != 0) buffer[0] = '\0';
  std::string_view full = buffer;
  return host.name == "localhost" || host.name == "127.0.0.1" || host.name == full ||
         host.name == full.substr(0, full.find('.'));
}

}  // namespace hvd
