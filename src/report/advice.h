// What to do about findings, and what that is expected to gain. Thread rule: pure function.
#pragma once

#include <vector>

#include "report/findings.h"

namespace hvd::report {

// `lateness`: [rank][step], the mean time that the others waited for that rank.
std::vector<Advice> advise(const Findings& found, const std::vector<std::vector<double>>& lateness);

}  // namespace hvd::report
