// Says in words what a dump shows: who waits for whom, and where the ranks that are waited for are.
// A dump may come from anywhere, so nothing in it is trusted. Thread rule: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"

namespace hvd::launcher {

// One operation that some ranks wait in, and the members of its process set that have not submitted it.
struct Waiting {
  std::string name, kind;
  int64_t process_set = 0;
  double since = 0;  // seconds since 1970, the first submit
  std::vector<int64_t> waiting, missing;
  bool is_agreed = false;  // all have submitted it, and it is being executed
};

// Of the workers' documents (Crew::document), oldest first. In a rank that has submitted as many operations as the one
// that waits, or has it in its ring, it is not missing.
std::vector<Waiting> find_waiting(const nlohmann::json& workers);

// Where a process is, from its stacks: "in __next__ (loader.py:12), called by train (train.py:30)"; empty: not known.
std::string place_in(const std::string& stacks);
// The Python part of the thread that counts, one frame a line, newest first.
std::vector<std::string> python_frames(const std::string& stacks);

// The whole story. An error: this is no dump.
Result<std::string> explain(const std::string& dump);

}  // namespace hvd::launcher
