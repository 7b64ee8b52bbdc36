// Starts a process in its own group, and finds all descendants of this process. Thread rule: other threads may exist;
// only async-signal-safe calls follow fork.
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
  UniqueFd in;     // on request: one socket for its stdin and stdout
  UniqueFd out, err;
};

// The pipe for a worker's end report (base/end_report.h). `read` is non-blocking; `write` is for the worker only.
struct ReportPipe {
  UniqueFd read, write;
};
Result<ReportPipe> make_report_pipe();

struct Program {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // NAME=VALUE
  std::string directory;                 // empty: this process's own
  std::vector<int> cpus;                 // allowed cores; empty: as for this process
  std::vector<int> kept;                 // descriptors of this process that it inherits with the same numbers
  bool converse = false;                 // stdin and stdout are one socket, `in`, instead of /dev/null and a pipe
};

// Runs the program with its output in non-blocking pipes. The child is killed when this process dies. Fails if the
// program cannot be executed.
Result<Child> spawn(const Program& program);

// The end of a process. Signal n counts as exit code 128+n.
struct Ending {
  bool signalled = false;
  int number = 0;  // exit code or signal
  int code() const { return signalled ? 128 + number : number; }
};
Ending ending_of(int wait_status);
std::string describe(Ending ending);  // "exit code 3", "killed by SIGSEGV (exit code 139)"
std::string signal_name(int signal);  // "SIGTERM"

// Makes orphans of our workers our own children, so that none of their processes can escape.
void adopt_orphans();

bool has_no_children();  // including children that have ended but were not waited for

// Every living process below `root`, from /proc, except those in `except` and their descendants. 0: this process.
std::vector<pid_t> descendants(const std::set<pid_t>& except = {}, pid_t root = 0);

}  // namespace hvd::launcher
