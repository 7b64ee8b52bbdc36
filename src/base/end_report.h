// What a worker reports to its launcher shortly before it exits: that it failed and how, or that it only lost another
// rank. The launcher gives every worker a pipe for this and names it in the environment; the worker writes one record.
// A worker that is killed writes nothing; the launcher notices that itself. Thread rule: pure functions, except that a
// process sends one report at a time.
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
  int32_t rank = -1;  // the reporting rank; -1: it was in no world
  Origin origin;      // of this rank: it failed. Of another rank: this rank lost that one

  bool is_consequence() const { return origin.rank >= 0 && origin.rank != rank; }
  bool operator==(const EndReport&) const = default;
};

Bytes encode(const EndReport& report);
Result<EndReport> decode_end_report(ByteView bytes);

// The name of the pipe in the environment: its descriptor and the kernel's identity of it. If a program in between has
// closed the pipe and reused the descriptor, nothing is written to it.
std::string name_report_pipe(int descriptor);
// The pipe of that name; -1 if it is not open. Programs that this process executes do not inherit it.
int open_report_pipe(std::string_view name);
void write_report(int descriptor, const EndReport& report);

// Removes one whole record from the front of the bytes read from the pipe.
std::optional<EndReport> take_report(std::string& bytes);

}  // namespace hvd
