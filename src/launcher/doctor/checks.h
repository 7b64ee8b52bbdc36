// The parts of judge() (findings.h): each looks at all hosts for one kind of problem. Thread rule: pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/doctor/findings.h"

namespace hvd::launcher {

// Findings of one check. The same finding about several hosts is merged.
class Check {
 public:
  Check(std::string name, std::vector<Finding>& all) : name_(std::move(name)), all_(all), begin_(all.size()) {}

  void add(Severity severity, const std::vector<std::string>& hosts, std::string text, std::string advice);
  void warn(const std::string& host, std::string text, std::string advice);
  void fail(const std::string& host, std::string text, std::string advice);
  // If nothing was added: reports that these hosts are fine.
  void otherwise(const std::vector<std::string>& hosts, const std::function<std::string()>& text);

 private:
  std::string name_;
  std::vector<Finding>& all_;
  size_t begin_;
};

// Those whose probes returned facts.
std::vector<const HostExam*> examined(const std::vector<HostExam>& hosts);
std::vector<std::string> names_of(const std::vector<const HostExam*>& hosts);

void check_versions(const std::vector<const HostExam*>& hosts, std::vector<Finding>& findings);
void check_limits(const std::vector<const HostExam*>& hosts, std::vector<Finding>& findings);
void check_machines(const std::vector<const HostExam*>& hosts, std::vector<Finding>& findings);
void check_addresses(const std::vector<const HostExam*>& hosts, std::vector<Finding>& findings);

}  // namespace hvd::launcher
