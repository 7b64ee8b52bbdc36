// How far the ranks below each child of a node have processed the stream of down messages: the minimum over these
// ranks. Thread rule: plain value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "negotiation/subtrees.h"

namespace hvd {

class Acknowledgements {
 public:
  explicit Acknowledgements(int32_t children) : processed_(static_cast<size_t>(children)) {}

  uint64_t next_number() { return ++sent_; }  // of a new down message; the first is 1
  uint64_t last_number() const { return sent_; }
  uint64_t processed_by(Child child) const { return processed_[static_cast<size_t>(index_of(child))]; }
  uint64_t processed_by_all() const { return *std::min_element(processed_.begin(), processed_.end()); }

  // False: the child acknowledges messages that were never sent.
  bool advance(Child child, uint64_t count) {
    uint64_t& processed = processed_[static_cast<size_t>(index_of(child))];
    if (count > sent_ - processed) return false;
    processed += count;
    return true;
  }

 private:
  uint64_t sent_ = 0;
  std::vector<uint64_t> processed_;
};

}  // namespace hvd
