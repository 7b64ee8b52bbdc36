// The doctor's judgement: from what was found on all hosts to what is wrong and what to do. Thread rule: pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "launcher/doctor/facts.h"

namespace hvd::launcher {

enum class Severity { ok, warn, fail };  // fail: jobs on these hosts cannot work

struct Finding {
  Severity severity = Severity::ok;
  std::string check;               // one word
  std::vector<std::string> hosts;  // that it is about, in their order
  std::string text;
  std::string advice;  // empty when all is well
};

std::string_view name_of(Severity severity);

// By check, in the order in which a job would meet the problems; a check without problems has one finding, that it is
// ok.
std::vector<Finding> judge(const std::vector<HostExam>& hosts);

bool has_failed(const std::vector<Finding>& findings);

// A table of findings with what to do, which hosts reach each other, and a verdict.
std::string report_text(const std::vector<HostExam>& hosts, const std::vector<Finding>& findings);

// {"ok": .., "findings": [..], "hosts": [..]}: everything that was found out.
std::string report_json(const std::vector<HostExam>& hosts, const std::vector<Finding>& findings);

}  // namespace hvd::launcher
