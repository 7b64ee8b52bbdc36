// The first failure of the world, shared by the ranks of this host. Every wait of every rank ends with it. Thread rule:
// any thread.
#pragma once

#include <atomic>

#include "base/status.h"
#include "transport/bells.h"
#include "transport/control_view.h"

namespace hvd {

class Failure {
 public:
  Failure(ControlView control, const Bells& bells) : control_(control), bells_(bells) {}

  // Fails every wait of every rank from now on, and wakes them. Only the first failure counts. It must have an origin.
  void set(const Status& status);
  Status get() const;  // ok: there is none
  bool is_set() const { return control_.block->failed.load(std::memory_order_relaxed) != 0; }

 private:
  ControlView control_;
  const Bells& bells_;
};

}  // namespace hvd
