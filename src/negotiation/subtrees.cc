#include "negotiation/subtrees.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace hvd {

Subtrees::Subtrees(const std::vector<std::vector<int32_t>>& children) {
  assert(!children.empty());
  starts_.push_back(0);
  for (const std::vector<int32_t>& ranks : children) {
    assert(!ranks.empty() && std::is_sorted(ranks.begin(), ranks.end()));
    ranks_.insert(ranks_.end(), ranks.begin(), ranks.end());
    starts_.push_back(ranks_.size());
  }
  auto [lowest, highest] = std::minmax_element(ranks_.begin(), ranks_.end());
  first_rank_ = *lowest;
  child_of_.assign(static_cast<size_t>(*highest - *lowest) + 1, kNoChild);
  for (int32_t child = 0; child < size(); child++) {
    for (int32_t rank : ranks(Child{child})) {
      Child& place = child_of_[static_cast<size_t>(rank - first_rank_)];
      assert(place == kNoChild);
      place = Child{child};
    }
  }
}

Subtrees Subtrees::of_single_ranks(int32_t world_size) {
  size_t count = static_cast<size_t>(world_size);
  Subtrees tree;
  tree.ranks_.resize(count);
  std::iota(tree.ranks_.begin(), tree.ranks_.end(), 0);
  tree.starts_.resize(count + 1);
  std::iota(tree.starts_.begin(), tree.starts_.end(), size_t{0});
  for (int32_t rank = 0; rank < world_size; rank++) tree.child_of_.push_back(Child{rank});
  return tree;
}

}  // namespace hvd
