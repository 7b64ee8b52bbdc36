// Chooses how to store into staging memory, by measuring. If two cores share a cache, ordinary stores are faster;
// otherwise stores that bypass the caches are, by a factor of ten for the writer. A virtual machine moves its cores
// during a job, so the measurement is repeated.
//
// The two cases differ in the cost of an ordinary store into lines that another core has read: sometimes the first few
// kilobytes of a copy are stored that way and timed. Timing whole copies would not work: the reader pays for stores
// that bypass the caches.
//
// Each rank chooses for itself, because the bytes are the same. Thread rule: plain value.
#pragma once

#include <algorithm>
#include <array>

#include "base/clock.h"
#include "collectives/kernels.h"

namespace hvd {

class StoreChoice {
 public:
  static constexpr size_t kProbeBytes = 4 << 10;

  StoreHint current() const { return current_; }

  // Before a copy of that many bytes: whether its first bytes, up to kProbeBytes, should be a probe.
  bool is_probe_due(size_t bytes) {
    since_probe_ += bytes;
    if (since_probe_ < kProbeEvery || bytes < kProbeBytes / 2) return false;
    since_probe_ = 0;
    return true;
  }
  // Records the duration of a probe.
  void learn(size_t bytes, Duration took) {
    costs_[next_++ % costs_.size()] =
        std::chrono::duration<double, std::nano>(took).count() / static_cast<double>(bytes);
    auto sorted = costs_;
    std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
    current_ = sorted[sorted.size() / 2] > kFar ? StoreHint::streaming : StoreHint::cached;
  }

 private:
  static constexpr size_t kProbeEvery = 2 << 20;
  // Nanoseconds per byte. Measured on Zen 4: 0.03 to 0.1 inside a last-level cache, 0.4 to 0.6 between two of them;
  // streaming stores cost 0.04, and 0.03 more for the reader.
  static constexpr double kFar = 0.2;

  StoreHint current_ = StoreHint::cached;
  size_t since_probe_ = kProbeEvery;  // the first copy is a probe
  std::array<double, 3> costs_{};     // the median is used: a probe may be interrupted
  size_t next_ = 0;
};

}  // namespace hvd
