// Messages between the workers of an elastic job and its launcher, over one connection per worker that lasts as long as
// both do (purpose "elastic"; the caller's number is the worker's). A worker reports that it is ready for the next
// world; the launcher answers with its place there, or that there is none. A message is one frame (net/framed.h): a
// kind and its fields. Thread rule: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "base/status.h"
#include "base/wire.h"
#include "model/world.h"
#include "net/framed.h"

namespace hvd {

// worker -> launcher
struct WorkerReady {
  Generation last{0};      // the last world of this worker; 0: none yet
  std::string reason;      // why that world ended; empty for a new worker
  int32_t lost_rank = -1;  // the rank of that world that was silent or lost; -1: unknown
};
struct WorkerLeaves {
  std::string reason;
};

// launcher -> worker
struct Place {
  Generation generation{1};
  int32_t rank = 0, size = 1;
  int32_t local_rank = 0, local_size = 1;
  int32_t cross_rank = 0, cross_size = 1;
};
struct WorldVoid {  // it can no longer form: workers that were joining it report again
  Generation generation{0};
  std::string reason;
};
struct Dismissal {  // there is no place for this worker
  std::string reason;
};
struct JobOver {  // and it was not successful
  std::string reason;
};
struct HostsChanged {
  enum class Change : uint8_t { removed = 1, added = 2, mixed = 3 };
  Change change = Change::removed;
  double timestamp = 0;  // seconds since 1970
};

using ElasticMessage = std::variant<WorkerReady, WorkerLeaves, Place, WorldVoid, Dismissal, JobOver, HostsChanged>;

inline constexpr size_t kLargestElasticMessage = 16 << 10;
inline constexpr size_t kLongestElasticReason = 4 << 10;  // longer ones are truncated
inline constexpr FrameLimits kElasticFrames{
    .largest_received = kLargestElasticMessage, .largest_sent = kLargestElasticMessage, .queued = 1 << 20};

Bytes encode(const ElasticMessage& message);
Result<ElasticMessage> decode_elastic_message(ByteView bytes);  // validates places: every rank is below its size

}  // namespace hvd
