// The items of the negotiation's two byte streams.
// Up, from a rank's Negotiator to the Coordinator, any number of items per message:
//   acknowledge n   the rank has processed n more down messages; everything after it was written knowing them
//   cached id       a request that was agreed before
//   carried id data the same, and the rank's tensor: see carried.h
//   full request
//   shutdown reason
// Down, from the Coordinator to every rank alike: the message's number, then items that are processed in order:
//   offer id data   the root carries this: see carried.h
//   plan            per tensor a cache id, the whole request, or both (from now on this id means this request)
//   evicted ids     forget them
//   tuning, stall report, shutdown notice
// Readers check everything that later stages rely on: enums, ranges, sizes that cannot overflow. Thread rule: plain
// functions and values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/wire.h"
#include "model/plan.h"
#include "model/request.h"

namespace hvd {

using CacheId = uint64_t;  // increases from 1 and is never reused; 0: not cached

// A node of the negotiation tree keeps evicted plans and errors until all ranks below it have acknowledged them; a rank
// with nothing to send acknowledges after this many, so that they do not accumulate.
inline constexpr size_t kMaxRemembered = 64;

// Larger tensors are rejected; the bound keeps sums and products of sizes within 64 bits.
inline constexpr uint64_t kMaxTensorBytes = uint64_t{1} << 48;

// The process set whose ranks must all submit the request. For form_process_set it is the world's, but only the members
// of the future set submit it (Gathering::members_of).
inline int32_t gathering_set(const Request& request) {
  bool by_world = manages_sets(request.kind) && request.kind != Kind::leave_process_set;
  return by_world ? kWorldSet : request.process_set;
}

void write_request(Encoder& out, const Request& request);
Request read_request(Decoder& in);

// Two bits of the first word; the other bits are the value. A carried id is encoded as a shutdown, which has no value.
enum class UpTag : uint8_t { cached, full, acknowledge, shutdown, carried };

struct UpItem {
  UpTag tag = UpTag::cached;
  uint64_t value = 0;  // cached, carried: the id; acknowledge: the count
  Request request;     // full
  std::string_view reason;
  Origin origin;  // shutdown
  ByteView data;  // carried
};

void write_acknowledge(Encoder& out, uint64_t count);
void write_cached(Encoder& out, CacheId id);
void write_carried(Encoder& out, CacheId id, ByteView data);
void write_full(Encoder& out, const Request& request);
void write_up_shutdown(Encoder& out, std::string_view reason, const Origin& origin);
void read_up_item(Decoder& in, UpItem& item);  // sets only the fields of the tag

enum class DownTag : uint8_t { plan, evicted, tuning, stall, shutdown, offer, devices };
inline constexpr DownTag kLastDownTag = DownTag::devices;

// Follows DownTag::plan; then come `tensors` items of write_tensor().
struct PlanHead {
  size_t tensors = 0;
  Code error = Code::ok;
  std::string_view error_text;
  Origin error_origin = {};
  int32_t result = -1;
};
void write_plan_head(Encoder& out, const PlanHead& head);
PlanHead read_plan_head(Decoder& in);

// Follows DownTag::devices: the devices of the next plan's tensors, by rank of the world. Only the first message with a
// map contains it. Numbers start at 1, in the order of the maps' first use.
void write_devices(Encoder& out, uint32_t number, const std::vector<Device>* map);
struct DevicesHead {
  uint32_t number = 0;
  std::vector<Device> map;  // for a new number
};
DevicesHead read_devices(Decoder& in, uint32_t known, size_t world_size);

// `request` may be null if the readers know the id.
void write_tensor(Encoder& out, CacheId id, const Request* request);
struct TensorHead {
  CacheId id = 0;
  bool with_request = false;  // a request follows
};
TensorHead read_tensor_head(Decoder& in);

struct Offer {
  CacheId id = 0;
  ByteView data;
};
void write_offer(Encoder& out, const Offer& offer);
Offer read_offer(Decoder& in);

void write_evicted(Encoder& out, std::span<const CacheId> ids);
std::vector<CacheId> read_evicted(Decoder& in);
void write_tuning(Encoder& out, const Tuning& tuning);
Tuning read_tuning(Decoder& in);
void write_stall(Encoder& out, std::string_view text);
StallReport read_stall(Decoder& in);
void write_shutdown(Encoder& out, const ShutdownNotice& notice);
ShutdownNotice read_shutdown(Decoder& in, int32_t world_size);

}  // namespace hvd
