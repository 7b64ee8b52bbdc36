// Converts the structures of the C ABI that describe requests. Called only by horovod.cc. Thread rule: functions of
// their arguments, for any thread.
#pragma once

#include <span>

#include "engine/runtime.h"
#include "horovod/horovod.h"

namespace hvd {

// Creates the operations of a task with one per request; several requests are a group.
Status read_requests(std::span<const hvd_request> requests, const hvd_submit_options& options, Task& task);

// For a caller with an older, shorter structure, the rest is zero; null is all zero.
hvd_submit_options read_options(const hvd_submit_options* options);

}  // namespace hvd
