// The steady clock, read in a third of the time where the processor's counter is one: each operation takes several
// times. Thread rule: now() any thread; adjust() one caller at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/clock.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace hvd::observe {

class Stopwatch {
 public:
  Stopwatch();

  // Nanoseconds of Clock, a few of them off.
  int64_t now() const {
#if defined(__x86_64__)
    const Line& line = lines_[current_.load(std::memory_order_acquire)];
    if (uint64_t rate = line.rate.load(std::memory_order_relaxed); rate != 0) {
      auto ticks = static_cast<int64_t>(__rdtsc() - line.ticks.load(std::memory_order_relaxed));
      auto elapsed = static_cast<Wide>(ticks) * static_cast<int64_t>(rate) >> kRateBits;
      return line.nanoseconds.load(std::memory_order_relaxed) + static_cast<int64_t>(elapsed);
    }
#endif
    return clock_now();
  }
  // Compares with the clock again; the counter's rate gets more precise with every call. The first one, a millisecond
  // after the beginning or later, makes now() use the counter.
  void adjust();

 private:
  __extension__ typedef __int128 Wide;
  static constexpr int kRateBits = 32;
  static int64_t clock_now() { return Clock::now().time_since_epoch().count(); }

  // now() is a line through this point. One is in use while the other is written, seconds before it is used.
  struct Line {
    std::atomic<uint64_t> ticks{0}, rate{0};  // nanoseconds per tick, times 2^kRateBits; 0: use the clock
    std::atomic<int64_t> nanoseconds{0};
  };
  std::array<Line, 2> lines_;
  std::atomic<uint32_t> current_{0};
  bool has_counter_ = false;
  uint64_t first_ticks_ = 0;
  int64_t first_nanoseconds_ = 0;
};

}  // namespace hvd::observe
