// Whether a rank that waits yields its core, or sleeps at once. Among ranks that wait for each other a yield takes
// microseconds and saves a wake-up. Beside programs that compute it lasts for their whole time slices, while a thread
// that wakes from sleep runs soon. So a long yield ends the yielding for a while, and for longer each time that it is
// tried in vain. Thread rule: one caller at a time.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace hvd {

class YieldChoice {
 public:
  static constexpr Duration kLong = std::chrono::milliseconds(1);  // less than a time slice, more than a peer's turn
  static constexpr Duration kFirstPause = std::chrono::milliseconds(50);
  static constexpr Duration kLongestPause = std::chrono::seconds(2);
  static constexpr int kManyShort = 64;  // yields in a row, after which the long ones are forgotten

  bool is_worth_it(TimePoint now) const { return now >= again_at_; }

  void took(TimePoint from, TimePoint to) {
    if (to - from < kLong) {
      if (++short_ >= kManyShort) pause_ = {};
      return;
    }
    short_ = 0;
    pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
    again_at_ = to + pause_;
  }

 private:
  TimePoint again_at_{};
  Duration pause_{};
  int short_ = 0;
};

}  // namespace hvd
