// Monotonic time. Decisions take the current time as an argument instead of reading a clock.
#pragma once

#include <chrono>

namespace hvd {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

inline constexpr TimePoint kNever = TimePoint::max();

constexpr double seconds_of(Duration duration) { return std::chrono::duration<double>(duration).count(); }
constexpr Duration seconds(double value) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}

// kNever if the result is out of range. `start` is not before the clock's epoch.
constexpr TimePoint after(TimePoint start, Duration duration) {
  return duration > kNever - start ? kNever : start + duration;
}

}  // namespace hvd
