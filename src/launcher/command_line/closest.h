// "Did you mean ...?" Thread rule: pure function.
#pragma once

#include <string_view>
#include <vector>

namespace hvd::launcher {

// The candidate with the fewest typing errors from `word`, or with a prefix that has (--tmeline: --timeline-filename);
// empty if none is close.
std::string_view closest(std::string_view word, const std::vector<std::string_view>& candidates);

}  // namespace hvd::launcher
