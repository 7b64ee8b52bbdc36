// "Did you mean ...?" Thread rule: pure function.
#pragma once

#include <string_view>
#include <vector>

namespace hvd::launcher {

// The candidate that is fewest slips of the keyboard away from `word`, or begins with something that is (--tmeline:
// --timeline-filename); empty when none is close.
std::string_view closest(std::string_view word, const std::vector<std::string_view>& candidates);

}  // namespace hvd::launcher
