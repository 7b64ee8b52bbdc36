// What a worker tells its launcher about its end shortly before it ends: that it failed and how, or that it only lost
// another rank. The launcher gives every worker a pipe for this, and names it in the environment; the worker writes one
// record. A worker that is killed says nothing; the launcher sees that by itself.
// Thread rule: pure functions, except that a process sends one report at a time.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

#include "base/origin.h"
#include "base/status.h"
#include "base/wire.h"

namespace hvd {

inline constexpr const char* kReportVariable = "_HOROVOD_REPORT";
inline constexpr int kLowestReportDescriptor = 200;  // scripts number the descriptors that they open from 3

struct EndReport {
  int32_t rank = -1;  // of the reporter; -1: it was in no world
  Origin origin;      // of this rank: it failed itself. Of another: what this rank lost

  bool is_consequence() const { return origin.rank >= 0 && origin.rank != rank; }
  bool operator==(const EndReport&) const = default;
};

Bytes encode(const EndReport& report);
Result<EndReport> decode_end_report(ByteView bytes);

// How the environment names the pipe: its number and what the kernel calls it, so that nothing else is written to where
// a program between the two has closed it.
std::string name_report_pipe(int descriptor);
// The pipe of that name; -1: it is not there. Programs that this process executes do not get it.
int open_report_pipe(std::string_view name);
void write_report(int descriptor, const EndReport& report);

// Takes one whole record off the front of what was read from the pipe.
std::optional<EndReport> take_report(std::string& bytes);

}  // namespace hvd
