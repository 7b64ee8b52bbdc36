// --doctor: checks whether these hosts can run a job together. One probe runs on each host, as a job of one process per
// host, started in the same way as every job: ssh or agents, crews, the store. findings.h evaluates and prints the
// results. --check-build: the contents of this installation. Thread rule: run_doctor: one thread, besides the store's
// own; run_probe: the main thread of its process; check_build starts processes and waits for them.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/command_line/options.h"

namespace hvd::launcher {

// `program`: the command that started horovodrun (argv[0]). The exit code: 0 if nothing failed, 1 otherwise, 128+n
// after signal n. The caller blocks the signals of guard.h and SIGCHLD.
int run_doctor(const Options& options, const std::string& program);

// The probe: `horovodrun --doctor-probe PROGRAM`. It prints its Facts as a line of JSON, and again whenever there are
// more, so that nothing is lost if it hangs. It ends within the start timeout of its job.
inline constexpr std::string_view kProbeOption = "--doctor-probe";

// `program`: the command with which the user called horovodrun. Returns the exit code, which is 0 even if the host has
// problems: the launcher evaluates those.
int run_probe(const std::string& program);

struct BuildReport {
  std::string text;
  std::string note;  // what could not be determined, and why; may be empty
};

// `program`: the command that started this program (argv[0]); a Python in its folder takes precedence over those in
// $PATH. Also reports the installed MPI, and whether Horovod's library for it is built or can be.
BuildReport check_build(const std::string& program, bool json, bool verbose);

}  // namespace hvd::launcher
