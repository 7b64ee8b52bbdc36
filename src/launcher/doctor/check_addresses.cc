#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/joined.h"
#include "launcher/doctor/checks.h"

namespace hvd::launcher {
namespace {

std::string address_text(const Address& address) { return fmt::format("{} ({})", address.ip, address.interface); }

// Attempts from several hosts to one address are grouped.
struct ByPlace {
  bool operator()(const Attempt* one, const Attempt* other) const {
    return std::tie(one->host, one->address.ip) < std::tie(other->host, other->address.ip);
  }
};

// No address of `to` answered.
void add_unreachable(Check& check, const std::string& from, const std::string& to,
                     const std::vector<const Attempt*>& attempts) {
  std::vector<std::string> reasons;
  for (const Attempt* attempt : attempts)
    if (!is_doubtful(*attempt) || attempts.size() == 1)
      reasons.push_back(fmt::format("{}: {}", address_text(attempt->address), attempt->error));
  if (reasons.empty()) reasons.emplace_back("it has no address of a network that hosts share");
  check.add(Severity::fail, {from, to}, fmt::format("{} cannot reach {}: {}", from, to, joined(reasons, "; ")),
            fmt::format("allow TCP connections from {} to {} (firewall, security group), or name a network that both "
                        "have with --network-interfaces",
                        from, to));
}

}  // namespace

void check_addresses(const std::vector<const HostExam*>& hosts, std::vector<Finding>& findings) {
  if (hosts.size() < 2) return;
  Check check("addresses", findings);
  size_t tried = 0, answered = 0;
  std::set<std::string> working;                                       // interfaces
  std::map<const Attempt*, std::vector<std::string>, ByPlace> silent;  // the hosts that tried
  for (const HostExam* from : hosts) {
    std::map<std::string, std::vector<const Attempt*>> by_host;
    for (const Attempt& attempt : from->facts->attempts) by_host[attempt.host].push_back(&attempt);
    for (const auto& [to, attempts] : by_host) {
      bool is_reached = std::any_of(attempts.begin(), attempts.end(), [](const Attempt* one) { return !!one->time; });
      if (!is_reached) add_unreachable(check, from->name, to, attempts);
      for (const Attempt* attempt : attempts) {
        if (attempt->time) working.insert(attempt->address.interface);
        if (!attempt->time && is_doubtful(*attempt)) continue;
        tried++;
        answered += attempt->time ? 1 : 0;
        if (!attempt->time && is_reached) silent[attempt].push_back(from->name);
      }
    }
  }
  for (const auto& [attempt, callers] : silent) working.erase(attempt->address.interface);
  std::string advice = "other addresses do, so jobs work, but a firewall or a wrong route is likely";
  if (!working.empty()) advice += "; to leave it out: --network-interfaces " + joined(working, ",");
  for (const auto& [attempt, callers] : silent)
    check.add(Severity::warn, {attempt->host},
              fmt::format("{} does not answer from {}", address_text(attempt->address), joined(callers, ", ")), advice);
  if (tried == 0)
    check.add(Severity::warn, names_of(hosts), "not tried: the hosts could not exchange their addresses",
              "see the findings about the launcher");
  check.otherwise(names_of(hosts), [&] {
    return fmt::format("every host reaches every other, {} of {} addresses answer", answered, tried);
  });
}

}  // namespace hvd::launcher
