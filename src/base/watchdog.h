// Ends the process if a call that cannot be interrupted does not return in time: an exit with a reason is better than
// waiting forever. Thread rule: one owner.
#pragma once

#include <string>
#include <thread>

#include "base/clock.h"

namespace hvd {

class Watchdog {
 public:
  // `cause` is printed to stderr before the exit. With kNever, it does nothing.
  Watchdog(TimePoint deadline, std::string cause);

 private:
  std::jthread thread_;  // stopped when the call returns
};

}  // namespace hvd
