// How large the messages of the store may be. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "net/framed.h"
#include "rendezvous/store.h"

namespace hvd {

inline constexpr size_t kStoreOverhead = 64;  // of a message, beside keys and values
inline constexpr size_t kEntryOverhead = 16;  // of each entry

// For the server: a request is at most one key and one value, while a gathered reply may be large. It never queues more
// than one reply for a client.
inline FrameLimits store_frames(const StoreLimits& limits) {
  return {.largest_received = limits.key + limits.value + kStoreOverhead,
          .largest_sent = limits.bytes + limits.entries * kEntryOverhead + kStoreOverhead,
          .queued = SIZE_MAX};
}

}  // namespace hvd
