// What the workers of an elastic job and its launcher say to each other, over one connection per worker that lives as
// long as both do (purpose "elastic"; the caller's number is the worker's). A worker says that it is ready for the next
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
struct RankRequest {
  Generation last{0};      // the world it comes from; 0: none yet
  std::string reason;      // why that one ended; empty for a newcomer
  int32_t lost_rank = -1;  // whom of that one it found silent or lost; -1: it does not know
};
struct LeaveNotice {
  std::string reason;
};

// launcher -> worker
struct RankAssignment {
  Generation generation{1};
  int32_t rank = 0, size = 1;
  int32_t local_rank = 0, local_size = 1;
  int32_t cross_rank = 0, cross_size = 1;
};
struct WorldVoid {  // it cannot form any more: workers on the way there come back
  Generation generation{0};
  std::string reason;
};
struct Dismissal {  // there is no place for this worker
  std::string reason;
};
struct JobOver {  // and not in success
  std::string reason;
};
struct HostsChanged {
  enum class Change : uint8_t { removed = 1, added = 2, mixed = 3 };
  Change change = Change::removed;
  double timestamp = 0;  // seconds since 1970
};

using ElasticMessage =
    std::variant<RankRequest, LeaveNotice, RankAssignment, WorldVoid, Dismissal, JobOver, HostsChanged>;

inline constexpr size_t kLargestElasticMessage = 16 << 10;
inline constexpr size_t kLongestElasticReason = 4 << 10;  // more is cut off
inline constexpr FrameLimits kElasticFrames{
    .largest_received = kLargestElasticMessage, .largest_sent = kLargestElasticMessage, .queued = 1 << 20};

Bytes encode(const ElasticMessage& message);
Result<ElasticMessage> decode_elastic_message(ByteView bytes);  // places are checked: every rank is below its size

}  // namespace hvd
