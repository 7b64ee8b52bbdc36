// Feeds the reader of host discovery scripts with anything: what it takes for hosts can be written as lines and read
// the same way again, and what it says about the rest stays short.
#include "elastic/discovery.h"

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd::elastic;
  constexpr int kDefaultSlots = 7;
  DiscoveryAnswer answer = parse_discovery({reinterpret_cast<const char*>(data), size}, kDefaultSlots);
  std::set<std::string> names;
  std::string lines;
  for (const HostSlots& host : answer.hosts) {
    if (!names.insert(host.name).second || host.slots < 0 || host.slots > 4096) std::abort();
    if (host.name.empty() || host.name.front() == '-' || host.name.size() > 255) std::abort();
    bool is_ipv6 = host.name.find(':') != std::string::npos;
    lines += (is_ipv6 ? "[" + host.name + "]" : host.name) + ":" + std::to_string(host.slots) + "\n";
  }
  for (const std::string& mistake : answer.mistakes) {
    for (char letter : mistake) {
      if (letter < ' ' || letter > '~') std::abort();
    }
  }
  if (answer.mistakes.size() > 5) std::abort();
  DiscoveryAnswer again = parse_discovery(lines, kDefaultSlots);
  if (again.hosts != answer.hosts || !again.mistakes.empty()) std::abort();
  return 0;
}
