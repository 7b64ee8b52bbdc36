// Puts the files of all ranks on one clock, that of rank 0. Ranks of a host share a clock. Between hosts nothing that a
// rank does can be heard of before it does it: a submission comes before the root hears of it, the root's agreement
// before an operation's start. Each operation so bounds the difference of two clocks from both sides, as in NTP.
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "report/findings.h"
#include "report/trace.h"

namespace hvd::report {

// Changes all times of the trace to microseconds of rank 0's clock, and says what was found.
std::vector<HostClock> align_clocks(Trace& trace);

}  // namespace hvd::report
