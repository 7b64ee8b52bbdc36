// Reads the structures of the C ABI that say what is wanted. Called by horovod.cc alone.
// Thread rule: functions of their arguments, for any thread.
#pragma once

#include <span>

#include "engine/runtime.h"
#include "horovod/horovod.h"

namespace hvd {

// Makes the operations of a task that has one per request; several requests are a group.
Status read_requests(std::span<const hvd_request> requests, const hvd_submit_options& options, Task& task);

// Of a caller whose structure is older, and so shorter, the rest is zero; null is all zero.
hvd_submit_options read_options(const hvd_submit_options* options);

}  // namespace hvd
