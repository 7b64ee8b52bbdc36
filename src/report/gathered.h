// The operations of all ranks, put together, and the steps they form. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "report/trace.h"

namespace hvd::report {

// One operation as all ranks together do it.
struct Collective {
  int64_t plan = 0;
  uint32_t name = 0;
  size_t begin = 0, end = 0;                          // its parts: Gathered::parts
  int64_t first = kUnknownTime, last = kUnknownTime;  // submissions
  int64_t second_last = kUnknownTime;                 // the last submission but one
  int32_t last_rank = -1;                             // position in Trace::ranks
};

struct Part {
  uint32_t rank = 0;       // position in Trace::ranks
  uint32_t operation = 0;  // index there
};

struct Gathered {
  std::vector<Collective> collectives;  // by plan
  std::vector<Part> parts;
  std::vector<std::vector<uint32_t>> collective_of;  // [rank][operation]
};

Gathered gather(const Trace& trace);

struct Steps {
  std::string anchor;           // empty: there are none
  std::vector<int64_t> begins;  // and the end of the last
};

// A step begins when the first rank submits the tensor that comes round once in each.
Steps find_steps(const Trace& trace, const Gathered& gathered);

}  // namespace hvd::report
