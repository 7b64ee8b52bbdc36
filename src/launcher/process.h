// Starting one worker in a process group of its own, and finding everything that came out of this process.
// Thread rule: single-threaded callers only (fork).
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace hvd {

struct Child {
  pid_t pid = -1;  // also its process group
  UniqueFd out, err;
};

// Runs `command` with stdin from /dev/null and its output in two non-blocking pipes. The child is killed when this
// process dies. Fails if the program cannot be executed.
Result<Child> spawn(const std::vector<std::string>& command, const std::vector<std::string>& environment);

// How a process ended. A signal n counts as exit code 128+n.
struct Ending {
  bool signalled = false;
  int number = 0;  // exit code or signal
  int code() const { return signalled ? 128 + number : number; }
};
Ending ending_of(int wait_status);
std::string describe(Ending ending);  // "exit code 3", "killed by SIGSEGV (exit code 139)"

// Makes orphans of our workers our own children, so that nothing they start can slip away.
void adopt_orphans();

// Every living process below this one, from /proc.
std::vector<pid_t> descendants();

}  // namespace hvd
