// --check-build: what this installation offers. Frameworks are looked up by the Python that horovodrun belongs to,
// without importing any of them. Thread rule: starts a process; single-threaded callers only.
#pragma once

#include <string>

#include "base/status.h"

namespace hvd {

struct BuildReport {
  std::string text;
  std::string note;  // what could not be found out, and why; may be empty
};

// `program` is how this program was called (argv[0]): a Python beside it comes before those of $PATH.
// Says also which MPI there is, and whether Horovod's library for it is built or can be.
BuildReport check_build(const std::string& program, bool json, bool verbose);

}  // namespace hvd
