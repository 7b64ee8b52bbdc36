// One operation on its way through two engines: MXNet's, which calls it when its arrays are ready, and Horovod's, which
// calls back when it is done; then MXNet is told.
//
// Thread rule: push() in any thread. MXNet owns the call and deletes it after it was told, in whichever thread.
#pragma once

#include <cstdint>
#include <memory>

#include "adapters/mxnet/ticket.h"
#include "horovod/horovod.h"

namespace hvd::mxnet {

// Pushes one request, or a group, to MXNet's engine and returns at once. The `data` of their inputs are arrays of MXNet
// (NDArrayHandle) that share no memory with each other. Those of kinds whose result is as large as the input are also
// the outputs; the other results are read through the ticket. Everything is copied. `world` counts the worlds of
// this process: what MXNet runs only after something of a later one was pushed fails. Returns an empty text, or why
// not.
std::string push(const hvd_request* requests, int32_t count, int32_t priority, int64_t world,
                 std::shared_ptr<Ticket> ticket);

// Waits until no call is left, for this many seconds at most, and returns how many are left.
int64_t wait_all(double seconds);

}  // namespace hvd::mxnet
