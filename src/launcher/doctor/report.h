// The doctor's findings for people and for programs. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "launcher/doctor/facts.h"
#include "launcher/doctor/findings.h"

namespace hvd {

// A table of findings with what to do, who reaches whom, and a verdict.
std::string report_text(const std::vector<HostExam>& hosts, const std::vector<Finding>& findings);

// {"ok": .., "findings": [..], "hosts": [..]}: everything that was found out.
std::string report_json(const std::vector<HostExam>& hosts, const std::vector<Finding>& findings);

}  // namespace hvd
