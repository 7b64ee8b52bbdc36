// What a report says. Filled by analysis.*, shown by render_*.cc. Times are seconds unless they say otherwise.
// Thread rule: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hvd::report {

// A rank's time per step, divided. Their sum is the step.
struct RankTime {
  int32_t rank = 0;
  std::string host;
  double computation = 0;                // all that is not waiting for Horovod: also loading data
  double waiting = 0;                    // for ranks that were late
  double transfer = 0;                   // for bytes to move: the exposed communication
  double overhead = 0;                   // for agreement, and behind other operations
  double communication = 0, hidden = 0;  // time with bytes on the move, and how much of it was not waited for
  double late = 0;                       // mean time by which it came after the last of the others, where it was last
  size_t last = 0;                       // operations for which it came last
  double before_first = 0;               // of its computation: before the first operation of a step
};

struct TensorTime {
  std::string name, kind;
  uint64_t bytes = 0;
  size_t count = 0;
  double transfer = 0, lateness = 0;  // mean: from its start to its end, from the first rank's submission to the last's
  double total = 0;                   // transfer of all together
  int32_t last_rank = -1;             // that came last most often
};

struct HostClock {
  std::string host;
  double offset = 0, error = 0;  // against that of rank 0, and how far from that it can be
  bool is_known = false;
};

struct Pause {
  size_t step = 0;
  double extra = 0;   // beyond a usual step
  int32_t rank = -1;  // that the others waited for; -1: all ranks at once
};

struct Advice {
  std::string what;  // "straggler", "pauses", "network", "overlap", "fusion", "cache", "uneven", "computation"
  std::string text, action;
  double gain = 0;  // expected, seconds per step at most
  int32_t rank = -1;
};

struct Findings {
  bool has_waits = false;  // the program waits in Horovod; otherwise exposed communication is estimated
  int32_t size = 0;
  size_t files = 0;
  std::vector<std::string> hosts;
  double recorded = 0;
  size_t operations = 0;
  std::string anchor;  // the tensor whose submissions mark the steps; empty: no steps were recognised
  std::vector<double> steps;
  double step = 0, step_fast = 0, step_slow = 0;  // median, 5th and 95th percentile; without steps: recorded
  std::vector<RankTime> ranks;
  double overlap = -1;                                         // of the communication, 0 to 1; -1: there is none
  std::vector<std::vector<double>> waited;                     // [rank][for rank], per step; positions in `ranks`
  std::vector<TensorTime> tensors;                             // the slowest
  double plans = 0, tensors_per_plan = 0, bytes_per_plan = 0;  // the first per step
  double small_plans = 0;                                      // share of plans below 64 KiB
  double latency = 0, rate = 0;  // of plans: time of an empty one, bytes per second beyond; 0: not known
  double cached = -1;            // share of tensors; -1: not recorded
  double agreement = 0;          // mean time from the last submission to the start
  std::vector<HostClock> clocks;
  std::vector<Pause> pauses;
  size_t pause_period = 0;     // steps; 0: none
  std::vector<Advice> advice;  // the largest gain first
  std::vector<std::string> problems;
};

}  // namespace hvd::report
