// Ends the process when a call that nothing can interrupt does not return in time: an end with a cause is better than
// waiting for ever without a word. Thread rule: one owner.
#pragma once

#include <string>
#include <thread>

#include "base/clock.h"

namespace hvd {

class Watchdog {
 public:
  // `cause` is what stderr is told at the end. Never: does nothing.
  Watchdog(TimePoint deadline, std::string cause);

 private:
  std::jthread thread_;  // stopped when the call has returned
};

}  // namespace hvd
