#include "negotiation/messages.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hvd {
namespace {

int32_t read_i32(Decoder& in, int32_t lowest = std::numeric_limits<int32_t>::min()) {
  int64_t value = in.signed_varint();
  if (value < lowest || value > std::numeric_limits<int32_t>::max()) return in.fail();
  return static_cast<int32_t>(value);
}

// Zero-sized dimensions count as one, so that partial products stay within the bound, too.
bool size_is_possible(const Request& request) {
  uint64_t bytes = size_of(request.dtype);
  for (int64_t dimension : request.shape) {
    if (dimension < 0 || static_cast<uint64_t>(dimension) > kMaxTensorBytes / bytes) return false;
    bytes *= static_cast<uint64_t>(std::max<int64_t>(dimension, 1));
  }
  return true;
}

bool is_well_formed(const Request& request) {
  if (!size_is_possible(request)) return false;
  bool can_wait_for_others = request.kind != Kind::join && !manages_sets(request.kind);
  if (!request.group.empty() && (request.group_size == 0 || !can_wait_for_others)) return false;
  if (!adds_set(request.kind)) return request.ranks.empty();
  return std::is_sorted(request.ranks.begin(), request.ranks.end());
}

}  // namespace

void write_request(Encoder& out, const Request& request) {
  out.u8(static_cast<uint8_t>(request.kind));
  out.u8(static_cast<uint8_t>(request.reduce_op));
  out.u8(static_cast<uint8_t>(request.dtype));
  out.signed_varint(request.device);
  out.signed_varint(request.process_set);
  out.signed_varint(request.root_rank);
  out.f64(request.prescale);
  out.f64(request.postscale);
  out.varint(request.shape.size());
  for (int64_t dimension : request.shape) out.signed_varint(dimension);
  out.varint(request.ranks.size());
  for (int32_t rank : request.ranks) out.signed_varint(rank);
  out.text(request.name);
  out.text(request.group);
  out.varint(request.group_size);
}

Request read_request(Decoder& in) {
  Request request;
  request.kind = in.one_of(kLastKind);
  request.reduce_op = in.one_of(kLastReduceOp);
  request.dtype = in.one_of(kLastDType);
  request.device = read_i32(in, kHost);
  request.process_set = read_i32(in);
  request.root_rank = read_i32(in);
  request.prescale = in.f64();
  request.postscale = in.f64();
  request.shape.resize(in.count());
  for (int64_t& dimension : request.shape) dimension = in.signed_varint();
  request.ranks.resize(in.count());
  for (int32_t& rank : request.ranks) rank = read_i32(in);
  request.name = in.text();
  request.group = in.text();
  uint64_t group_size = in.varint();
  if (group_size > std::numeric_limits<uint32_t>::max()) in.fail();
  request.group_size = static_cast<uint32_t>(group_size);
  if (in.ok() && !is_well_formed(request)) in.fail();
  return request;
}

namespace {

void write_up_tag(Encoder& out, UpTag tag, uint64_t value) { out.varint(value << 2 | static_cast<uint64_t>(tag)); }

}  // namespace

void write_acknowledge(Encoder& out, uint64_t count) { write_up_tag(out, UpTag::acknowledge, count); }
void write_cached(Encoder& out, CacheId id) { write_up_tag(out, UpTag::cached, id); }
void write_carried(Encoder& out, CacheId id, ByteView data) {
  write_up_tag(out, UpTag::shutdown, id);
  out.varint(data.size());
  out.bytes(data);
}
void write_full(Encoder& out, const Request& request) {
  write_up_tag(out, UpTag::full, 0);
  write_request(out, request);
}
void write_up_shutdown(Encoder& out, std::string_view reason, const Origin& origin) {
  write_up_tag(out, UpTag::shutdown, 0);
  out.text(reason);
  encode(out, origin);
}

void read_up_item(Decoder& in, UpItem& item) {
  uint64_t word = in.varint();
  item.tag = static_cast<UpTag>(word & 3);
  item.value = word >> 2;
  if (item.tag == UpTag::shutdown && item.value != 0) item.tag = UpTag::carried;
  switch (item.tag) {
    case UpTag::cached:
    case UpTag::acknowledge:
      if (item.value == 0) in.fail();
      break;
    case UpTag::carried:
      item.data = in.bytes(in.varint());
      if (item.data.empty()) in.fail();
      break;
    case UpTag::full:
      if (item.value != 0) in.fail();
      item.request = read_request(in);
      break;
    case UpTag::shutdown:
      item.reason = in.text();
      item.origin = decode_origin(in);
      break;
  }
}

void write_plan_head(Encoder& out, const PlanHead& head) {
  out.u8(static_cast<uint8_t>(DownTag::plan));
  out.varint(head.tensors);
  out.u8(static_cast<uint8_t>(head.error));
  if (head.error != Code::ok) {
    out.text(head.error_text);
    encode(out, head.error_origin);
  }
  out.signed_varint(head.result);
}

PlanHead read_plan_head(Decoder& in) {
  PlanHead head;
  head.tensors = in.count();
  head.error = static_cast<Code>(in.one_of(static_cast<uint8_t>(kLastCode)));
  if (head.error != Code::ok) {
    head.error_text = in.text();
    head.error_origin = decode_origin(in);
  }
  head.result = read_i32(in, -1);
  if (head.tensors == 0) in.fail();
  return head;
}

void write_devices(Encoder& out, uint32_t number, const std::vector<Device>* map) {
  out.u8(static_cast<uint8_t>(DownTag::devices));
  out.varint(number);
  if (map == nullptr) return;
  out.varint(map->size());
  for (Device device : *map) out.signed_varint(device);
}

DevicesHead read_devices(Decoder& in, uint32_t known, size_t world_size) {
  DevicesHead head;
  uint64_t number = in.varint();
  if (number == 0 || number > uint64_t{known} + 1) in.fail();
  if (!in.ok()) return head;
  head.number = static_cast<uint32_t>(number);
  if (number <= known) return head;
  head.map.resize(in.count());
  if (head.map.size() != world_size) in.fail();
  for (Device& device : head.map) device = read_i32(in, kHost);
  return head;
}

void write_tensor(Encoder& out, CacheId id, const Request* request) {
  out.varint(id << 1 | (request != nullptr ? 1 : 0));
  if (request != nullptr) write_request(out, *request);
}

TensorHead read_tensor_head(Decoder& in) {
  uint64_t word = in.varint();
  if (word == 0) in.fail();  // neither an id nor a request
  return {.id = word >> 1, .with_request = (word & 1) != 0};
}

void write_offer(Encoder& out, const Offer& offer) {
  out.u8(static_cast<uint8_t>(DownTag::offer));
  out.varint(offer.id);
  out.varint(offer.data.size());
  out.bytes(offer.data);
}

Offer read_offer(Decoder& in) {
  Offer offer{.id = in.varint(), .data = {}};
  offer.data = in.bytes(in.varint());
  return offer;
}

void write_evicted(Encoder& out, std::span<const CacheId> ids) {
  out.u8(static_cast<uint8_t>(DownTag::evicted));
  out.varint(ids.size());
  for (CacheId id : ids) out.varint(id);
}

std::vector<CacheId> read_evicted(Decoder& in) {
  std::vector<CacheId> ids(in.count());
  for (CacheId& id : ids) id = in.varint();
  return ids;
}

void write_tuning(Encoder& out, const Tuning& tuning) {
  out.u8(static_cast<uint8_t>(DownTag::tuning));
  out.signed_varint(tuning.fusion_threshold);
  out.f64(tuning.cycle_time_ms);
  out.u8(tuning.cache_enabled ? 1 : 0);
  out.signed_varint(tuning.one_shot_limit);
}

Tuning read_tuning(Decoder& in) {
  Tuning tuning;
  tuning.fusion_threshold = in.signed_varint();
  tuning.cycle_time_ms = in.f64();
  tuning.cache_enabled = in.one_of(uint8_t{1}) != 0;
  tuning.one_shot_limit = in.signed_varint();
  bool possible = tuning.fusion_threshold >= 0 && tuning.one_shot_limit >= 0 && std::isfinite(tuning.cycle_time_ms) &&
                  tuning.cycle_time_ms >= 0;
  if (!possible) in.fail();
  return tuning;
}

void write_stall(Encoder& out, std::string_view text) {
  out.u8(static_cast<uint8_t>(DownTag::stall));
  out.text(text);
}

StallReport read_stall(Decoder& in) { return {.text = std::string(in.text())}; }

void write_shutdown(Encoder& out, const ShutdownNotice& notice) {
  out.u8(static_cast<uint8_t>(DownTag::shutdown));
  out.signed_varint(notice.rank);
  out.text(notice.reason);
  encode(out, notice.origin);
}

ShutdownNotice read_shutdown(Decoder& in, int32_t world_size) {
  int32_t rank = read_i32(in, -1);
  if (rank >= world_size) in.fail();
  std::string reason(in.text());
  return {.rank = rank, .reason = std::move(reason), .origin = decode_origin(in)};
}

}  // namespace hvd
