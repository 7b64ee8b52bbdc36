// The items of the stream from an Aggregator to the node above, any number of items per message:
//   acknowledge n   every rank below has processed n more down messages
//   ids             whole cached requests, as runs of numbers
//   full            a whole request, and where its tensors are
//   some            a cached or a full request of the ranks it lists, and since when the first of them waits
//   join            the ranks it lists have joined
//   shutdown        a rank wants to end communication
// Whole means: all members of the process set below this child have submitted it, but those that have joined if joined
// ranks may be missing. Two words say something about the next item:
//   knows n         the submitting ranks had processed the first n down messages; else, as many as are acknowledged
//   age             the first of them waits for so long; else, not long
// Readers check everything a later stage relies on. Thread rule: plain functions and values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/wire.h"
#include "model/request.h"
#include "negotiation/messages.h"

namespace hvd {

enum class SubtreeTag : uint8_t { acknowledge, ids, full, some, join, shutdown, knows, age };

struct IdRun {
  CacheId first = 0;
  uint64_t length = 0;
};

struct SubtreeItem {
  SubtreeTag tag = SubtreeTag::acknowledge;
  uint64_t value = 0;           // acknowledge: the count; some: the id, 0 if the request follows; shutdown: the rank
  uint64_t knows = 0;           // 0: as many as are acknowledged
  Duration age{};               // of the oldest arrival
  std::vector<IdRun> runs;      // ids: ascending
  std::vector<int32_t> ranks;   // some, join: ascending
  Request request;              // full, some, join
  std::vector<Device> devices;  // full, some; repeated as often as needed. Empty: in host memory
  std::string_view reason;
  Origin origin;  // shutdown
};

// Ages are rounded to this.
inline constexpr Duration kAgeUnit = std::chrono::milliseconds(1);

void write_knows(Encoder& out, uint64_t position);
void write_age(Encoder& out, Duration age);
void write_subtree_acknowledge(Encoder& out, uint64_t count);
// Ascending, each once.
void write_ids(Encoder& out, std::span<const CacheId> ids);
// `devices`: of each rank that the item represents, ascending; empty if in host memory.
void write_whole(Encoder& out, const Request& request, std::span<const Device> devices);
void write_some(Encoder& out, CacheId id, std::span<const int32_t> ranks);
void write_some(Encoder& out, const Request& request, std::span<const int32_t> ranks, std::span<const Device> devices);
void write_join(Encoder& out, const Request& request, std::span<const int32_t> ranks);
void write_subtree_shutdown(Encoder& out, int32_t rank, std::string_view reason, const Origin& origin);

// Sets only the fields of the tag, and `knows` and `age`. Ranks are below `world_size`.
void read_subtree_item(Decoder& in, SubtreeItem& item, int32_t world_size);

}  // namespace hvd
