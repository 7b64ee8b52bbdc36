// The doctor's process on one host: `horovodrun --doctor-probe PROGRAM`, started by the launcher as the command of a
// job with one process per host. It prints its Facts as a line of JSON, and prints them anew whenever it knows more, so
// that what it has found is not lost if it gets stuck. It ends within the start time-out of its job. Thread rule: the
// main thread of its process.
#pragma once

#include <string>
#include <string_view>

namespace hvd {

inline constexpr std::string_view kProbeOption = "--doctor-probe";

// `program` is how the user called horovodrun. Returns the exit code; 0 also when there is something wrong with the
// host: that is for the launcher to judge.
int run_probe(const std::string& program);

}  // namespace hvd
