// A list as text: joined(ranks, ", ") is "0, 2, 3". Thread rule: pure function.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

namespace hvd {

// `each` is the format of one item.
template <class Range>
std::string joined(const Range& items, std::string_view separator, fmt::string_view each = "{}") {
  std::string text;
  bool first = true;
  for (const auto& item : items) {
    if (!std::exchange(first, false)) text += separator;
    text += fmt::vformat(each, fmt::make_format_args(item));
  }
  return text;
}

}  // namespace hvd
