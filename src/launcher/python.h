// Asking the Python that horovodrun belongs to. Thread rule: starts a process and waits for it; SIGCHLD is not used.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"

namespace hvd {

// The Python of the environment that horovodrun was installed into, or else of $PATH; empty: there is none. `program`
// is how horovodrun was called (argv[0]): the link that leads to it counts first.
std::string find_python(const std::string& program);

// All that a program writes to stdout, or nothing when it fails or takes longer than `patience`.
std::string output_of(std::vector<std::string> command, Duration patience);

}  // namespace hvd
