// Chooses how to store into staging memory, by measuring. Cores that share a cache want ordinary stores; cores that do
// not want stores past the caches, which are then ten times faster to write. A virtual machine moves its cores around
// while a job runs, so the question is asked again and again.
//
// What tells the two apart is the cost of an ordinary store into lines that another core has read: now and then the
// first few kilobytes of a copy are made that way and timed. Timing whole copies would not do: what stores past the
// caches cost is paid by the reader.
//
// The choice is each rank's own: it changes no bytes. Thread rule: plain value.
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

  // Before a copy of that many bytes: shall its beginning, up to kProbeBytes of it, be a probe?
  bool is_probe_due(size_t bytes) {
    since_probe_ += bytes;
    if (since_probe_ < kProbeEvery || bytes < kProbeBytes / 2) return false;
    since_probe_ = 0;
    return true;
  }
  // The probe took that long.
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
  std::array<double, 3> costs_{};     // the median counts: a probe may be interrupted
  size_t next_ = 0;
};

}  // namespace hvd
