// Chooses how to store into staging memory, by measuring. Cores that share a cache want ordinary stores; cores that do
// not want stores past the caches, which are then ten times faster. A virtual machine moves its cores around while a
// job runs, so the other way is tried again now and then. The choice is each rank's own: it changes no bytes.
// Thread rule: plain value.
#pragma once

#include "base/clock.h"
#include "collectives/kernels.h"

namespace hvd {

class StoreChoice {
 public:
  static constexpr size_t kWorthTiming = 8 << 10;  // bytes

  Store current() const { return best_; }
  // What to use for the next large copy; mostly current(), rarely the other to see how it does.
  Store next(TimePoint now) {
    if (now - explored_ < kExploreEvery) return best_;
    explored_ = now;
    return best_ == Store::cached ? Store::streaming : Store::cached;
  }
  void learn(Store used, size_t bytes, Duration took) {
    double cost = std::chrono::duration<double, std::nano>(took).count() / static_cast<double>(bytes);
    if (cost > kInterrupted) return;
    double& known = used == Store::cached ? cached_ : streaming_;
    known += (cost - known) * (used == best_ ? 0.2 : 0.5);
    double& other = best_ == Store::cached ? streaming_ : cached_;
    double& mine = best_ == Store::cached ? cached_ : streaming_;
    if (mine > other * kWorthSwitching) best_ = best_ == Store::cached ? Store::streaming : Store::cached;
  }

 private:
  static constexpr Duration kExploreEvery = std::chrono::milliseconds(20);
  static constexpr double kInterrupted = 2.0;  // ns per byte: no memory is that slow, the thread was preempted
  static constexpr double kWorthSwitching = 1.3;

  Store best_ = Store::cached;
  double cached_ = 0.03, streaming_ = 0.04;  // ns per byte
  TimePoint explored_{};
};

}  // namespace hvd
