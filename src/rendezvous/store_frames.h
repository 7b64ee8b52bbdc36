// Size limits for messages of the store. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "net/framed.h"
#include "rendezvous/store.h"

namespace hvd {

inline constexpr size_t kStoreOverhead = 64;  // of a message, besides keys and values
inline constexpr size_t kEntryOverhead = 16;  // of each entry

// For the server: a request is at most one key and one value, while a gathered reply may be large. It queues at most
// one reply per client.
inline FrameLimits store_frames(const StoreLimits& limits) {
  return {.largest_received = limits.key + limits.value + kStoreOverhead,
          .largest_sent = limits.bytes + limits.entries * kEntryOverhead + kStoreOverhead,
          .queued = SIZE_MAX};
}

}  // namespace hvd
