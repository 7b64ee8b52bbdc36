// Starting one process in a group of its own, and finding everything that came out of this process.
// Thread rule: any number of threads may exist; fork is followed by async-signal-safe calls alone.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace hvd::launcher {

struct Child {
  pid_t pid = -1;  // also its process group
  UniqueFd in;     // when asked for: one socket for its stdin and stdout
  UniqueFd out, err;
};

// Where a worker says why it ends (base/end_report.h). `read` does not block; `write` is for the worker alone.
struct ReportPipe {
  UniqueFd read, write;
};
Result<ReportPipe> make_report_pipe();

struct Program {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // NAME=VALUE
  std::string directory;                 // empty: this process's own
  std::vector<int> cpus;                 // it may run on; empty: as this process
  std::vector<int> kept;                 // descriptors of this process that it gets under the same numbers
  bool converse = false;                 // stdin and stdout are one socket, `in`, instead of /dev/null and a pipe
};

// Runs the program with its output in non-blocking pipes. The child is killed when this process dies. Fails if the
// program cannot be executed.
Result<Child> spawn(const Program& program);

// How a process ended. A signal n counts as exit code 128+n.
struct Ending {
  bool signalled = false;
  int number = 0;  // exit code or signal
  int code() const { return signalled ? 128 + number : number; }
};
Ending ending_of(int wait_status);
std::string describe(Ending ending);  // "exit code 3", "killed by SIGSEGV (exit code 139)"
std::string signal_name(int signal);  // "SIGTERM"

// Makes orphans of our workers our own children, so that nothing they start can slip away.
void adopt_orphans();

bool has_no_children();  // not even one that has ended and was not waited for

// Every living process below `root`, from /proc; without those in `except` and what is below them. 0: this process.
std::vector<pid_t> descendants(const std::set<pid_t>& except = {}, pid_t root = 0);

}  // namespace hvd::launcher
