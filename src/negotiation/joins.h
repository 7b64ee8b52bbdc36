// Which ranks have joined: they have no more data and contribute zeros to allreduces on the world set, until all ranks
// have joined. Thread rule: plain value.
#pragma once

#include <algorithm>
#include <cstdint>

#include "negotiation/rank_set.h"

namespace hvd {

class Joins {
 public:
  explicit Joins(int32_t world_size) : world_size_(world_size), ranks_(world_size) {}

  // False: it has already joined.
  bool join(Rank rank) {
    if (!ranks_.insert(rank)) return false;
    last_ = in_this_cycle_ ? std::max(last_, index_of(rank)) : index_of(rank);
    in_this_cycle_ = true;
    return true;
  }
  // Ranks that join between two calls count as joining at the same time; the highest of them is the last.
  void end_cycle() { in_this_cycle_ = false; }

  const RankSet& ranks() const { return ranks_; }
  bool is_complete() const { return ranks_.size() == world_size_; }
  int32_t last() const { return last_; }
  void start_over() { ranks_.clear(); }

 private:
  int32_t world_size_;
  RankSet ranks_;
  int32_t last_ = -1;
  bool in_this_cycle_ = false;
};

}  // namespace hvd
