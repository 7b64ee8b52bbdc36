// Violations: a program under test broke a rule of CUDA or NCCL. A report names both sides, then the process aborts, or
// ends with kViolationExit when it exits (HVD_STANDIN_VIOLATION=exit).
#pragma once

#include <array>
#include <functional>
#include <string>

#include "core/visible.h"

namespace standin {

// Return addresses of the caller, innermost first; symbolised when printed.
struct Stack {
  std::array<void*, 16> frames{};
  int depth = 0;
};
STANDIN_VISIBLE Stack here();
STANDIN_VISIBLE std::string to_text(const Stack& stack);  // one line per frame, indented

STANDIN_VISIBLE void violation(const std::string& text);

// Counts what is still alive at exit, one line per object. Called without locks held, at the end of the process.
STANDIN_VISIBLE void at_exit_list(std::function<std::string()> alive);

}  // namespace standin
