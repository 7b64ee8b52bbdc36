#include "launcher/command_line/closest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace hvd::launcher {
namespace {

struct Distance {
  size_t whole, beginning;
};

// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other, or into its
// best-matching prefix.
Distance distance(std::string_view from, std::string_view to) {
  // for the last three letters of `from`
  std::vector<size_t> before(to.size() + 1), last(to.size() + 1), row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= from.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (from[i - 1] != to[j - 1])});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return {row.back(), *std::min_element(row.begin(), row.end())};
}

}  // namespace

std::string_view closest(std::string_view word, const std::vector<std::string_view>& candidates) {
  std::string_view best;
  size_t best_distance = word.size() / 3 + 2;
  size_t slips_in_beginning = word.size() / 7;  // short words are similar to almost any prefix
  for (std::string_view candidate : candidates) {
    Distance found = distance(word, candidate);
    size_t nearness = found.whole;
    if (found.beginning <= slips_in_beginning) nearness = std::min(nearness, found.beginning + 1);
    if (nearness >= best_distance) continue;
    best = candidate;
    best_distance = nearness;
  }
  return best;
}

}  // namespace hvd::launcher
