#include "net/congestion.h"

#include <linux/tcp.h>  // tcp_info with the shortest round trip, which netinet/tcp.h does not have
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/fd.h"

namespace hvd {
namespace {

constexpr uint32_t kShortRoundTrip = 200;  // microseconds

// The default of a new socket on this host; empty: unknown.
std::string default_congestion() {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  char name[16] = {};
  socklen_t length = sizeof name - 1;
  if (!socket || ::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0) return "";
  return name;
}

bool paces(const std::string& name) { return name.starts_with("bbr"); }

}  // namespace

std::string first_congestion(const std::string& choice) {
  if (choice == "default") return "";
  if (choice != "auto") return choice;
  return paces(default_congestion()) ? "reno" : "";
}

void set_congestion(int descriptor, const std::string& name) {
  if (name.empty()) return;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size()));
}

// A single round trip may be slow because the peer was not scheduled, so the minimum is used.
void settle_congestion(int descriptor, const std::string& choice) {
  if (choice != "auto") return;
  std::string usual = default_congestion();
  if (!paces(usual)) return;
  tcp_info about{};
  socklen_t length = sizeof about;
  bool is_known = ::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &about, &length) == 0;
  if (is_known && about.tcpi_min_rtt < kShortRoundTrip) return;
  set_congestion(descriptor, usual);
}

}  // namespace hvd
