// The part of the negotiation tree below a node: its children, and the ranks of the world below each of them. A child
// with one rank is that rank's Negotiator, a child with several is the Aggregator of another node. Thread rule: plain
// value that does not change.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/request.h"

namespace hvd {

enum class Child : int32_t {};  // position among the children of a node
constexpr int32_t index_of(Child child) { return static_cast<int32_t>(child); }
inline constexpr Child kNoChild{-1};

class Subtrees {
 public:
  // The ranks below each child, sorted; none is empty, and no rank is below two of them.
  explicit Subtrees(const std::vector<std::vector<int32_t>>& children);
  // Every rank of the world is a child of its own.
  static Subtrees of_single_ranks(int32_t world_size);

  int32_t size() const { return static_cast<int32_t>(starts_.size()) - 1; }
  int32_t count_ranks() const { return static_cast<int32_t>(ranks_.size()); }
  int32_t end_rank() const { return first_rank_ + static_cast<int32_t>(child_of_.size()); }  // after the highest rank
  std::span<const int32_t> ranks(Child child) const {
    size_t index = static_cast<size_t>(index_of(child));
    return std::span(ranks_).subspan(starts_[index], starts_[index + 1] - starts_[index]);
  }
  bool is_single(Child child) const { return ranks(child).size() == 1; }
  // kNoChild: the rank is not below this node.
  Child child_of(Rank rank) const {
    size_t place = static_cast<size_t>(index_of(rank) - first_rank_);
    return place < child_of_.size() ? child_of_[place] : kNoChild;
  }

 private:
  Subtrees() = default;

  std::vector<int32_t> ranks_;   // grouped by child
  std::vector<size_t> starts_;   // of each child in ranks_, then the end
  std::vector<Child> child_of_;  // from first_rank_ on
  int32_t first_rank_ = 0;
};

}  // namespace hvd
