#include <fmt/core.h>

#include <algorithm>

#include "base/joined.h"
#include "launcher/doctor/checks.h"
#include "launcher/doctor/findings.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMostNamed = 3;      // hosts in a row of the table
constexpr size_t kWidestMatrix = 16;  // hosts

std::string hosts_text(const std::vector<std::string>& hosts, size_t all) {
  if (hosts.size() == all && all > 1) return "all hosts";
  if (hosts.size() <= kMostNamed) return joined(hosts, ", ");
  std::vector<std::string> first(hosts.begin(), hosts.begin() + kMostNamed - 1);
  return fmt::format("{} and {} more", joined(first, ", "), hosts.size() - first.size());
}

std::string table(const std::vector<HostExam>& hosts, const std::vector<Finding>& findings) {
  size_t check_width = 0, hosts_width = 0;
  for (const Finding& finding : findings) {
    check_width = std::max(check_width, finding.check.size());
    hosts_width = std::max(hosts_width, hosts_text(finding.hosts, hosts.size()).size());
  }
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("  {:4}  {:{}}  {:{}}  {}\n", name_of(finding.severity), finding.check, check_width,
                        hosts_text(finding.hosts, hosts.size()), hosts_width, finding.text);
    if (!finding.advice.empty())
      text += fmt::format("        {:{}}  {:{}}  -> {}\n", "", check_width, "", hosts_width, finding.advice);
  }
  return text;
}

// "2/3": the number of its addresses that answer.
std::string cell(const HostExam& from, const HostExam& to) {
  if (&from == &to) return "-";
  size_t tried = 0, answered = 0;
  for (const Attempt& attempt : from.facts->attempts) {
    if (attempt.host != to.name) continue;
    tried++;
    answered += attempt.time ? 1 : 0;
  }
  return tried == 0 ? "?" : fmt::format("{}/{}", answered, tried);
}

std::string matrix(const std::vector<HostExam>& hosts) {
  auto rows = examined(hosts);
  if (rows.size() < 2 || rows.size() > kWidestMatrix) return "";
  size_t width = 4;
  for (const HostExam* host : rows) width = std::max(width, host->name.size());
  std::string text = "\nAddresses that answer, from the host on the left to the host above:\n\n";
  std::string line = fmt::format("  {:{}}", "", width);
  for (const HostExam* to : rows) line += fmt::format("  {:{}}", to->name, width);
  text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  for (const HostExam* from : rows) {
    line = fmt::format("  {:{}}", from->name, width);
    for (const HostExam* to : rows) line += fmt::format("  {:{}}", cell(*from, *to), width);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string verdict(const std::vector<Finding>& findings) {
  auto count = [&](Severity severity) {
    return std::count_if(findings.begin(), findings.end(),
                         [&](const Finding& finding) { return finding.severity == severity; });
  };
  auto failed = count(Severity::fail), warned = count(Severity::warn);
  std::string warnings = fmt::format("{} warning{}", warned, warned == 1 ? "" : "s");
  if (failed > 0)
    return fmt::format("{} problem{} and {}: jobs on these hosts will not work.\n", failed, failed == 1 ? "" : "s",
                       warnings);
  if (warned > 0) return fmt::format("{}; jobs on these hosts will work.\n", warnings);
  return "All is well.\n";
}

}  // namespace

std::string report_text(const std::vector<HostExam>& hosts, const std::vector<Finding>& findings) {
  std::string title =
      fmt::format("Horovod v{} on {} host{}:\n\n", HVD_VERSION, hosts.size(), hosts.size() == 1 ? "" : "s");
  return title + table(hosts, findings) + matrix(hosts) + "\n" + verdict(findings);
}

std::string report_json(const std::vector<HostExam>& hosts, const std::vector<Finding>& findings) {
  Json report{{"ok", !has_failed(findings)}, {"version", HVD_VERSION}};
  report["findings"] = Json::array();
  for (const Finding& finding : findings)
    report["findings"].push_back({{"severity", name_of(finding.severity)},
                                  {"check", finding.check},
                                  {"hosts", finding.hosts},
                                  {"text", finding.text},
                                  {"advice", finding.advice}});
  report["hosts"] = Json::array();
  for (const HostExam& host : hosts)
    report["hosts"].push_back({{"name", host.name},
                               {"slots", host.slots},
                               {"contact_error", host.contact_error},
                               {"probe_error", host.probe_error},
                               {"facts", host.facts ? to_json(*host.facts) : Json(nullptr)}});
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hvd::launcher
