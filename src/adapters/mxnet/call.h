// One operation that passes through two engines: MXNet's calls it when its arrays are ready, and Horovod's calls back
// when it is done; then MXNet is notified.
//
// Thread rule: push() in any thread. MXNet owns the call and deletes it, in any thread, after the notification.
#pragma once

#include <cstdint>
#include <memory>

#include "adapters/mxnet/ticket.h"
#include "horovod/horovod.h"

namespace hvd::mxnet {

// Pushes one request, or a group, to MXNet's engine and returns at once. The `data` of their inputs are MXNet arrays
// (NDArrayHandle) that share no memory. If the result is as large as the input, the inputs are also the outputs; other
// results are read through the ticket. Everything is copied. `world` counts the worlds of this process: a call fails if
// MXNet runs it after one of a later world was pushed. Returns an empty text, or an error.
std::string push(const hvd_request* requests, int32_t count, int32_t priority, int64_t world,
                 std::shared_ptr<Ticket> ticket);

// Waits until no call is left, for this many seconds at most, and returns the number left.
int64_t wait_all(double seconds);

}  // namespace hvd::mxnet
