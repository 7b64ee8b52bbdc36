// Collectives with separate custom calls for start and end, identified by number. They use their own memory: XLA may
// move an array from one buffer to another between two calls.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>

#include "adapters/jax/ffi_api.h"

namespace hvd::jax {

// frame: arrays in, their number (two 32-bit words) out.
void start_collective(const FfiFrame& frame);

// frame: the number in, results out.
void finish_collective(const FfiFrame& frame);

// Waits for operations that were started in a world that has ended, and forgets them.
void forget_started();

}  // namespace hvd::jax
