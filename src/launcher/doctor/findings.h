// Evaluation: from the facts about all hosts to problems and advice. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "launcher/doctor/facts.h"

namespace hvd::launcher {

enum class Severity { ok, warn, fail };  // fail: jobs on these hosts will not work

struct Finding {
  Severity severity = Severity::ok;
  std::string check;               // one word
  std::vector<std::string> hosts;  // the hosts concerned, in order
  std::string text;
  std::string advice;  // empty if there is no problem
};

std::string_view name_of(Severity severity);

// By check, in the order in which a job would encounter the problems; a check without problems has one finding with
// severity ok.
std::vector<Finding> judge(const std::vector<HostExam>& hosts);

bool has_failed(const std::vector<Finding>& findings);

// A table of findings with advice, which hosts reach each other, and a verdict.
std::string report_text(const std::vector<HostExam>& hosts, const std::vector<Finding>& findings);

// {"ok": .., "findings": [..], "hosts": [..]}: all results.
std::string report_json(const std::vector<HostExam>& hosts, const std::vector<Finding>& findings);

}  // namespace hvd::launcher
