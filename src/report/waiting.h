// Divides the time of one rank into what it waited for. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "report/gathered.h"
#include "report/trace.h"

namespace hvd::report {

// A stretch of a rank's time in which one thing is going on.
struct Stretch {
  enum class Kind { computation, waiting, transfer, overhead };
  Kind kind = Kind::computation;
  int64_t begin = 0, end = 0;
  int32_t late_rank = -1;  // of waiting: position in Trace::ranks
  bool moves = false;      // bytes are on the move meanwhile
};

// When the threads of the user wait, as sorted intervals that do not overlap. A program that never waits (its
// operations end in callbacks) is taken to wait from the last submission of a run of operations to their end.
std::vector<Interval> waits_of(const RankTrace& rank, bool has_waits);

// The stretches of that time, in order, without gaps.
void divide(const Trace& trace, const Gathered& gathered, uint32_t rank, const std::vector<Interval>& waits,
            Interval within, const std::function<void(const Stretch&)>& take);

}  // namespace hvd::report
