// Which ranks below a node have submitted a name. A child whose members all have is one bit, so that recording a whole
// subtree costs the same as recording one rank. Thread rule: plain value.
#pragma once

#include <cstdint>

#include "negotiation/rank_set.h"
#include "negotiation/subtrees.h"

namespace hvd {

class Attendance {
 public:
  explicit Attendance(const Subtrees& tree) : tree_(&tree), children_(tree.size()), ranks_(tree.end_rank()) {}

  // Of members of the process set only: a whole child stands for its members.
  bool contains(Rank rank) const { return children_.contains(tree_->child_of(rank)) || ranks_.contains(rank); }
  bool contains_whole(Child child) const { return children_.contains(child); }
  // Every child is either complete or absent.
  bool is_by_child() const { return ranks_.empty(); }

  // The child has that many members, none of which is recorded yet.
  void insert_whole(Child child, int32_t members) {
    children_.insert(child);
    count_ += members;
  }
  // Does nothing if the rank is already recorded.
  void insert(Rank rank) {
    if (!contains(rank)) count_ += ranks_.insert(rank) ? 1 : 0;
  }
  void clear() {
    children_.clear();
    ranks_.clear();
    count_ = 0;
  }
  int32_t size() const { return count_; }  // ranks

 private:
  const Subtrees* tree_;
  IndexSet<Child> children_;
  RankSet ranks_;
  int32_t count_ = 0;
};

}  // namespace hvd
