#include "launcher/doctor/findings.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "launcher/doctor/checks.h"

namespace hvd::launcher {
namespace {

constexpr double kMostSkew = 1;  // seconds
constexpr double kTrialBytes = 1 << 20;

void check_contact(const std::vector<HostExam>& hosts, std::vector<Finding>& findings) {
  Check check("contact", findings);
  std::vector<std::string> names;
  for (const HostExam& host : hosts) {
    names.push_back(host.name);
    if (!host.contact_error.empty())
      check.fail(host.name, host.contact_error, host.command.empty() ? "" : "try by hand: " + host.command);
  }
  check.otherwise(names,
                  [&] { return hosts.size() == 1 ? "it answers" : fmt::format("{} hosts answer", hosts.size()); });
}

void check_probes(const std::vector<HostExam>& hosts, std::vector<Finding>& findings) {
  Check check("probe", findings);
  for (const HostExam& host : hosts)
    if (!host.probe_error.empty())
      check.fail(host.name, host.probe_error,
                 "processes that are started there do not work: other findings about the host may show "
                 "why; --start-timeout gives it more time");
}

void check_launcher(const std::vector<const HostExam*>& hosts, std::vector<Finding>& findings) {
  Check check("launcher", findings);
  bool has_asked = hosts.size() > 1;
  for (const HostExam* host : hosts)
    if (!host->facts->launcher_error.empty())
      check.fail(host->name, host->facts->launcher_error,
                 "allow TCP connections from there to this machine (firewall, security group), or name the network "
                 "that they share with --network-interfaces");
  if (has_asked) check.otherwise(names_of(hosts), [] { return "its store can be reached from everywhere"; });
}

void check_clocks(const std::vector<const HostExam*>& hosts, std::vector<Finding>& findings) {
  if (hosts.size() < 2) return;
  Check check("clock", findings);
  double most = 0;
  const std::string& first = hosts.front()->name;
  for (const HostExam* host : hosts) {
    const auto& clock = host->facts->clock;
    if (!clock) {
      check.warn(host->name, fmt::format("not compared: there was no connection to {}", first),
                 "see the findings about its addresses");
      continue;
    }
    double skew = std::max(0.0, std::abs(clock->seconds) - clock->uncertainty);
    most = std::max(most, std::abs(clock->seconds) + clock->uncertainty);
    if (skew > kMostSkew)
      check.warn(host->name,
                 fmt::format("its clock is {:.1f} s {} that of {}", std::abs(clock->seconds),
                             clock->seconds > 0 ? "ahead of" : "behind", first),
                 "timelines and logs of the hosts will not match, and file times will be wrong: run chrony or another "
                 "NTP client");
  }
  check.otherwise(names_of(hosts), [&] { return fmt::format("within {:.1f} ms of each other", most * 1000); });
}

void check_allreduce(const std::vector<const HostExam*>& hosts, std::vector<Finding>& findings) {
  Check check("allreduce", findings);
  double slowest = 0;
  for (const HostExam* host : hosts) {
    const auto& trial = host->facts->allreduce;
    if (!trial) {
      if (host->probe_error.empty()) check.fail(host->name, "the probe ended before it", "run the doctor again");
    } else if (trial->was_skipped) {
      check.warn(host->name, "not tried: " + trial->error, "fix that first, then run the doctor again");
    } else if (!trial->error.empty()) {
      check.fail(host->name, trial->error, "a training job would fail in the same way; the message shows where");
    } else {
      slowest = std::max(slowest, trial->seconds);
    }
  }
  if (hosts.empty()) return;
  check.otherwise(names_of(hosts), [&] {
    return fmt::format("1 MiB over {} host{} in {:.2f} ms ({:.0f} MB/s)", hosts.size(), hosts.size() == 1 ? "" : "s",
                       slowest * 1e3, slowest > 0 ? kTrialBytes / slowest / 1e6 : 0);
  });
}

}  // namespace

std::string_view name_of(Severity severity) {
  switch (severity) {
    case Severity::ok: return "ok";
    case Severity::warn: return "warn";
    case Severity::fail: return "fail";
  }
  return "";
}

void Check::add(Severity severity, const std::vector<std::string>& hosts, std::string text, std::string advice) {
  for (size_t i = begin_; i < all_.size(); i++) {
    Finding& known = all_[i];
    if (known.severity != severity || known.text != text || known.advice != advice) continue;
    for (const std::string& host : hosts)
      if (std::find(known.hosts.begin(), known.hosts.end(), host) == known.hosts.end()) known.hosts.push_back(host);
    return;
  }
  all_.push_back({severity, name_, hosts, std::move(text), std::move(advice)});
}

void Check::warn(const std::string& host, std::string text, std::string advice) {
  add(Severity::warn, {host}, std::move(text), std::move(advice));
}

void Check::fail(const std::string& host, std::string text, std::string advice) {
  add(Severity::fail, {host}, std::move(text), std::move(advice));
}

void Check::otherwise(const std::vector<std::string>& hosts, const std::function<std::string()>& text) {
  if (all_.size() == begin_ && !hosts.empty()) all_.push_back({Severity::ok, name_, hosts, text(), ""});
}

std::vector<const HostExam*> examined(const std::vector<HostExam>& hosts) {
  std::vector<const HostExam*> found;
  for (const HostExam& host : hosts)
    if (host.facts) found.push_back(&host);
  return found;
}

std::vector<std::string> names_of(const std::vector<const HostExam*>& hosts) {
  std::vector<std::string> names;
  names.reserve(hosts.size());
  for (const HostExam* host : hosts) names.push_back(host->name);
  return names;
}

std::vector<Finding> judge(const std::vector<HostExam>& hosts) {
  std::vector<Finding> findings;
  auto with_facts = examined(hosts);
  check_contact(hosts, findings);
  check_probes(hosts, findings);
  check_launcher(with_facts, findings);
  check_versions(with_facts, findings);
  check_addresses(with_facts, findings);
  check_clocks(with_facts, findings);
  check_limits(with_facts, findings);
  check_machines(with_facts, findings);
  check_allreduce(with_facts, findings);
  return findings;
}

bool has_failed(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.severity == Severity::fail; });
}

}  // namespace hvd::launcher
