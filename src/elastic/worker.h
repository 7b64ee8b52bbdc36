// The driver's record of one worker process. Thread rule: plain value.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "elastic/events.h"

namespace hvd::elastic {

enum class WorkerState {
  starting,  // has not asked for a place yet
  ready,     // has asked and waits
  busy,      // has a place; has not asked again
  leaving,   // was told that there is no place; will end
  stopping,  // is being stopped
};

struct Worker {
  WorkerId id{};
  std::string host;
  int slot = 0;
  WorkerState state = WorkerState::starting;
  TimePoint started;
  TimePoint since;                        // in this state
  Generation generation{0};               // its last generation; 0: a new worker
  int rank = 0;                           // in that generation
  bool listed = true;                     // its slot is listed; if not, others continue without it when they can
  bool going = false;                     // has announced that it will leave
  bool announced = false;                 // the current generation was notified that it comes or goes
  std::optional<TimePoint> accused = {};  // when others reported it as silent

  bool is_newcomer() const { return generation == Generation{0}; }
  bool is(WorkerState other) const { return state == other; }
  bool is_ending() const { return is(WorkerState::leaving) || is(WorkerState::stopping); }
  bool is_usable() const { return listed && !going && !is_ending(); }
};

// "worker 7 (rank 2, host b)", or "worker 9 (host c)" before its first place.
std::string name_of(const Worker& worker);

}  // namespace hvd::elastic
