#include "negotiation/rank_set.h"

#include <fmt/core.h>

namespace hvd {

std::string text_of_ranks(const std::vector<int32_t>& sorted, std::string_view mark) {
  std::string text = sorted.size() == 1 ? "rank " : "ranks ";
  for (size_t first = 0; first < sorted.size();) {
    size_t last = first;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) last++;
    if (first > 0) text += ", ";
    text += first == last ? fmt::format("{}{}", mark, sorted[first])
                          : fmt::format("{}{}-{}", mark, sorted[first], sorted[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace hvd
