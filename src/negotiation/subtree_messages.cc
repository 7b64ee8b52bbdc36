#include "negotiation/subtree_messages.h"

#include <algorithm>

namespace hvd {
namespace {

constexpr uint64_t kMaxAge = uint64_t{1} << 40;  // units; keeps times inside 64 bits

void write_tag(Encoder& out, SubtreeTag tag, uint64_t value) { out.varint(value << 3 | static_cast<uint64_t>(tag)); }

// Ranges of ranks: their number, then for each the distance from the end of the previous one, and its length.
void write_ranks(Encoder& out, std::span<const int32_t> ranks) {
  auto is_start = [&](size_t i) { return i == 0 || ranks[i] != ranks[i - 1] + 1; };
  size_t ranges = 0;
  for (size_t i = 0; i < ranks.size(); i++) ranges += is_start(i) ? 1 : 0;
  out.varint(ranges);
  int32_t end = 0;
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first + 1;
    while (last < ranks.size() && !is_start(last)) last++;
    out.varint(static_cast<uint64_t>(ranks[first] - end));
    out.varint(last - first);
    end = ranks[last - 1] + 1;
    first = last;
  }
}

void read_ranks(Decoder& in, std::vector<int32_t>& ranks, int32_t world_size) {
  ranks.clear();
  uint64_t end = 0, limit = static_cast<uint64_t>(world_size);
  for (size_t ranges = in.count(2); ranges > 0 && in.ok(); ranges--) {
    uint64_t gap = in.varint(), length = in.varint();
    if (gap > limit - end || length == 0 || length > limit - end - gap) {
      in.fail();
      return;
    }
    for (uint64_t rank = end + gap; rank < end + gap + length; rank++) ranks.push_back(static_cast<int32_t>(rank));
    end += gap + length;
  }
  if (ranks.empty()) in.fail();
}

// Hosts with accelerators are mostly alike, so the list is periodic: only its shortest period is sent.
size_t period_of(std::span<const Device> devices) {
  std::vector<size_t> borders(devices.size() + 1, 0);  // the longest proper border of each prefix
  for (size_t i = 1; i < devices.size(); i++) {
    size_t border = borders[i];
    while (border > 0 && devices[border] != devices[i]) border = borders[border];
    borders[i + 1] = devices[border] == devices[i] ? border + 1 : 0;
  }
  return devices.size() - borders[devices.size()];
}

void write_devices(Encoder& out, std::span<const Device> devices) {
  size_t period = period_of(devices);
  out.varint(period);
  for (Device device : devices.first(period)) out.signed_varint(device);
}

void read_devices(Decoder& in, const Request& request, std::vector<Device>& devices) {
  devices.resize(in.count());
  for (Device& device : devices) {
    int64_t value = in.signed_varint();
    if (value < 0 || value > INT32_MAX) in.fail();
    device = static_cast<Device>(value);
  }
  if (devices.empty() != (request.device == kHost)) in.fail();
}

void read_full(Decoder& in, SubtreeItem& item) {
  item.request = read_request(in);
  if (item.request.kind == Kind::join) in.fail();  // those are items of their own
  read_devices(in, item.request, item.devices);
}

void read_runs(Decoder& in, uint64_t count, std::vector<IdRun>& runs) {
  runs.clear();
  if (count == 0 || count > in.left() / 2) {
    in.fail();
    return;
  }
  CacheId end = 0;
  for (; count > 0 && in.ok(); count--) {
    uint64_t gap = in.varint(), length = in.varint();
    CacheId first = 0;
    if (length == 0 || __builtin_add_overflow(end, gap, &first) || first == 0 ||
        __builtin_add_overflow(first, length, &end)) {
      in.fail();
      return;
    }
    runs.push_back({first, length});
  }
}

}  // namespace

void write_knows(Encoder& out, uint64_t position) { write_tag(out, SubtreeTag::knows, position); }
void write_age(Encoder& out, Duration age) {
  uint64_t units = static_cast<uint64_t>(std::max(age, Duration{}) / kAgeUnit);
  write_tag(out, SubtreeTag::age, std::min(units, kMaxAge));
}
void write_subtree_acknowledge(Encoder& out, uint64_t count) { write_tag(out, SubtreeTag::acknowledge, count); }

void write_ids(Encoder& out, std::span<const CacheId> ids) {
  auto is_start = [&](size_t i) { return i == 0 || ids[i] != ids[i - 1] + 1; };
  size_t runs = 0;
  for (size_t i = 0; i < ids.size(); i++) runs += is_start(i) ? 1 : 0;
  write_tag(out, SubtreeTag::ids, runs);
  CacheId end = 0;
  for (size_t first = 0; first < ids.size();) {
    size_t last = first + 1;
    while (last < ids.size() && !is_start(last)) last++;
    out.varint(ids[first] - end);
    out.varint(last - first);
    end = ids[last - 1] + 1;
    first = last;
  }
}

void write_whole(Encoder& out, const Request& request, std::span<const Device> devices) {
  write_tag(out, SubtreeTag::full, 0);
  write_request(out, request);
  write_devices(out, devices);
}

void write_some(Encoder& out, CacheId id, std::span<const int32_t> ranks) {
  write_tag(out, SubtreeTag::some, id);
  write_ranks(out, ranks);
}

void write_some(Encoder& out, const Request& request, std::span<const int32_t> ranks, std::span<const Device> devices) {
  write_some(out, 0, ranks);
  write_request(out, request);
  write_devices(out, devices);
}

void write_join(Encoder& out, const Request& request, std::span<const int32_t> ranks) {
  write_tag(out, SubtreeTag::join, 0);
  write_ranks(out, ranks);
  write_request(out, request);
}

void write_subtree_shutdown(Encoder& out, int32_t rank, std::string_view reason, const Origin& origin) {
  write_tag(out, SubtreeTag::shutdown, static_cast<uint64_t>(rank));
  out.text(reason);
  encode(out, origin);
}

void read_subtree_item(Decoder& in, SubtreeItem& item, int32_t world_size) {
  item.knows = 0;
  item.age = {};
  uint64_t word = in.varint();
  while (in.ok()) {
    item.tag = static_cast<SubtreeTag>(word & 7);
    item.value = word >> 3;
    if (item.tag != SubtreeTag::knows && item.tag != SubtreeTag::age) break;
    if (item.tag == SubtreeTag::knows) item.knows = item.value;
    if (item.tag == SubtreeTag::age) item.age = std::min(item.value, kMaxAge) * kAgeUnit;
    word = in.varint();
  }
  if (!in.ok()) return;
  switch (item.tag) {
    case SubtreeTag::acknowledge:
      if (item.value == 0) in.fail();
      break;
    case SubtreeTag::ids: read_runs(in, item.value, item.runs); break;
    case SubtreeTag::full:
      if (item.value != 0) in.fail();
      read_full(in, item);
      break;
    case SubtreeTag::some:
      read_ranks(in, item.ranks, world_size);
      if (item.value == 0) read_full(in, item);
      break;
    case SubtreeTag::join:
      if (item.value != 0) in.fail();
      read_ranks(in, item.ranks, world_size);
      item.request = read_request(in);
      if (item.request.kind != Kind::join) in.fail();
      break;
    case SubtreeTag::shutdown:
      if (item.value >= static_cast<uint64_t>(world_size)) in.fail();
      item.reason = in.text();
      item.origin = decode_origin(in);
      break;
    case SubtreeTag::knows:
    case SubtreeTag::age: break;  // read above
  }
}

}  // namespace hvd
