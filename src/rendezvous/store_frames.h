// How large the messages of the store may be. Thread rule: pure functions.
#pragma once

#include "net/framed.h"
#include "rendezvous/store.h"

namespace hvd {

inline constexpr size_t kStoreOverhead = 64;  // of a message, beside its key and value

// For the server: a request is at most one key and one value, while a gathered reply may be large.
inline FrameLimits store_frames(const StoreLimits& limits) {
  return {.largest_received = limits.key + limits.value + kStoreOverhead,
          .largest_sent = limits.bytes + limits.bytes / 4,
          .queued = 2 * limits.bytes};
}

}  // namespace hvd
