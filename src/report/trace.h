// What the files of a timeline of all ranks say, in memory: one small record for each operation and wait. Written by
// trace_reader.*, read by analysis.*. Times are microseconds of the file's own clock.
// Thread rule: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hvd::report {

inline constexpr int64_t kUnknownTime = -1;

struct Operation {
  uint32_t name = 0;  // index into Trace::names
  uint32_t kind = 0;  // index into Trace::kinds
  int64_t plan = -1;  // the same on all ranks; -1: not recorded
  bool is_cached = false;
  int64_t submit = kUnknownTime, start = kUnknownTime, end = kUnknownTime;
  uint64_t bytes = 0;
  int64_t agreed = kUnknownTime;  // of the root: when all ranks had submitted it
};

// The root heard at `when` that a rank has submitted an operation.
struct Mark {
  uint32_t operation = 0;  // index into RankTrace::operations
  int32_t rank = 0;
  int64_t when = 0;
};

struct Interval {
  int64_t begin = 0, end = 0;
};

struct RankTrace {
  int32_t rank = -1;
  int32_t size = 0;                   // of the world; 0: not recorded
  std::string host;                   // empty: not recorded
  int64_t epoch_start = 0;            // of the file's clock, by the wall clock of the host
  int64_t boot_start = -1;            // likewise, by the clock that all processes of a host share; -1: not recorded
  std::vector<Operation> operations;  // in the order of their starts
  std::vector<Interval> waits;        // of the user's threads, in the order of their ends
  std::vector<Mark> marks;            // of the root
  uint64_t dropped = 0;               // events that the recorder had no room for
  std::string file;
};

struct Trace {
  std::vector<RankTrace> ranks;  // by rank, without those whose file is missing
  std::vector<std::string> names, kinds;
  std::vector<std::string> problems;  // in words for the user
};

}  // namespace hvd::report
