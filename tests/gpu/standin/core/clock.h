// Vector clocks. A timeline is a stream or the host; each counts its own steps. An access at step n of timeline t
// happened before a piece of work exactly when the clock of that work has at least n for t.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace standin {

using Timeline = uint32_t;

class VectorClock {
 public:
  uint64_t at(Timeline timeline) const { return timeline < steps_.size() ? steps_[timeline] : 0; }
  uint64_t step(Timeline timeline) {
    if (timeline >= steps_.size()) steps_.resize(timeline + 1);
    return ++steps_[timeline];
  }
  void join(const VectorClock& other) {
    if (other.steps_.size() > steps_.size()) steps_.resize(other.steps_.size());
    for (size_t i = 0; i < other.steps_.size(); ++i) steps_[i] = std::max(steps_[i], other.steps_[i]);
  }

 private:
  std::vector<uint64_t> steps_;
};

}  // namespace standin
