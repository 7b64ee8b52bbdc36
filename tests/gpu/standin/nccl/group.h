// What a thread has collected between ncclGroupStart and ncclGroupEnd. A call outside a group is a group of one.
#pragma once

#include <functional>
#include <vector>

#include "nccl/operation.h"

namespace standin::nccl {

struct QueuedCall {
  Communicator* communicator;
  Stream* stream;
  Call call;
};

struct Group {
  int depth = 0;
  std::vector<QueuedCall> calls;
  std::vector<std::function<int()>> starts;  // inits, splits, finalizes: each makes its own progress
  std::vector<Communicator*> aborts;
};
Group& group();  // of this thread

// Runs what was collected, when the depth is 0. Returns the result of the group.
int end_group(const char* call);

// Ends these communicators together: their operations leave the GPU without a result.
void abort_together(const std::vector<Communicator*>& communicators, const SitePointer& site);

}  // namespace standin::nccl
