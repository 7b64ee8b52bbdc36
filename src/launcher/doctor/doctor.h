// --doctor: can these hosts run a job together? One probe runs on each host, as a job of one process per host started
// in the same way as every job: ssh or agents, crews, the store. findings.h evaluates what they find, and prints it.
// --check-build: what this installation contains.
// Thread rule: run_doctor: one thread, beside the store's own; run_probe: the main thread of its process; check_build
// starts processes and waits for them.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/command_line/options.h"

namespace hvd::launcher {

// `program` is how horovodrun was called (argv[0]). The exit code: 0 when nothing failed, 1 otherwise, 128+n after
// signal n. The signals of guard.h and SIGCHLD are blocked by the caller.
int run_doctor(const Options& options, const std::string& program);

// The probe: `horovodrun --doctor-probe PROGRAM`. It prints its Facts as a line of JSON, and prints them again whenever
// it knows more, so that nothing is lost if it gets stuck. It ends within the start timeout of its job.
inline constexpr std::string_view kProbeOption = "--doctor-probe";

// `program` is how the user called horovodrun. Returns the exit code; 0 also when there is something wrong with the
// host: that is for the launcher to judge.
int run_probe(const std::string& program);

struct BuildReport {
  std::string text;
  std::string note;  // what could not be found out, and why; may be empty
};

// `program` is how this program was called (argv[0]): a Python beside it comes before those of $PATH.
// Says also which MPI there is, and whether Horovod's library for it is built or can be.
BuildReport check_build(const std::string& program, bool json, bool verbose);

}  // namespace hvd::launcher
