// How long a node works in a step: a fresh one gets the messages that a node in a simulated world received, one step
// after the other, with nothing else in the caches but its own.
#pragma once

#include <vector>

#include "model/request.h"
#include "scale/world.h"

namespace hvd {

struct StepTimes {
  double first = 0;   // seconds of the first step
  double cached = 0;  // of the fastest of the others
};

StepTimes replay(int32_t world_size, const Witness& witness);
// The same for a rank that submits the requests and receives the root's messages.
StepTimes replay_rank(int32_t world_size, const Witness& root, const std::vector<Request>& requests);

}  // namespace hvd
