// How far each rank has followed the stream of down messages. Thread rule: plain value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/request.h"

namespace hvd {

class Acknowledgements {
 public:
  explicit Acknowledgements(int32_t world_size) : processed_(static_cast<size_t>(world_size)) {}

  uint64_t next_number() { return ++sent_; }  // of a new down message; the first is 1
  uint64_t last_number() const { return sent_; }
  uint64_t processed_by(Rank rank) const { return processed_[static_cast<size_t>(index_of(rank))]; }
  uint64_t processed_by_all() const { return *std::min_element(processed_.begin(), processed_.end()); }

  // False: the rank claims messages that were never sent.
  bool advance(Rank rank, uint64_t count) {
    uint64_t& processed = processed_[static_cast<size_t>(index_of(rank))];
    if (count > sent_ - processed) return false;
    processed += count;
    return true;
  }

 private:
  uint64_t sent_ = 0;
  std::vector<uint64_t> processed_;
};

}  // namespace hvd
