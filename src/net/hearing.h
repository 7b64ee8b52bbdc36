// When a peer was last heard. Silence that accrued while this process was not scheduled does not count: heartbeats may
// have arrived that it has not read yet.
// Thread rule: one caller at a time.
#pragma once

#include "base/clock.h"

namespace hvd {

class Hearing {
 public:
  explicit Hearing(TimePoint now) { restart(now); }

  void restart(TimePoint now) { heard_at_ = looked_at_ = now; }  // earlier silence does not count
  void hear(TimePoint now) { heard_at_ = now; }
  // Call before judging the peer. `limit`: how long it may be silent.
  void look(TimePoint now, Duration limit) {
    if (now - looked_at_ > limit / 2) heard_at_ = now;
    looked_at_ = now;
  }
  TimePoint heard_at() const { return heard_at_; }
  TimePoint looked_at() const { return looked_at_; }

 private:
  TimePoint heard_at_, looked_at_;
};

}  // namespace hvd
