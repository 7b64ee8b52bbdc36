#include "negotiation/intake.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "negotiation/carried.h"

namespace hvd {
namespace {

AgreedRequest shared(Request&& request) {
  if (adds_set(request.kind)) request.process_set = kWorldSet;
  return std::make_shared<const Request>(std::move(request));
}

Status speaks_for_another(Rank rank, Rank other) {
  return broken(rank, fmt::format("it speaks for rank {}, which is not below it", index_of(other)));
}

// Ages are limited to the clock's epoch.
TimePoint before(TimePoint now, Duration age) { return now - std::min(age, std::max(now - TimePoint{}, Duration{})); }

}  // namespace

Status Intake::receive(Rank rank, ByteView message, TimePoint now, IntakeListener& listener) {
  Child child = gathering_.tree().child_of(rank);
  if (child == kNoChild) return broken(rank, "it is not below this node");
  bool is_single = gathering_.tree().is_single(child);
  Decoder in(message);
  while (!in.at_end()) {
    if (is_single) {
      read_up_item(in, item_);
    } else {
      read_subtree_item(in, subtree_item_, world_size_);
    }
    if (!in.ok()) break;
    Status status = is_single ? take(rank, child, now, listener) : take_subtree(child, now, listener);
    if (!status.ok()) return status;
  }
  if (in.ok()) return {};
  return {Code::unknown, fmt::format("rank {} sent bytes that are not a negotiation message", index_of(rank))};
}

Status Intake::take(Rank rank, Child child, TimePoint now, IntakeListener& listener) {
  uint64_t position = acknowledgements_.processed_by(child);
  switch (item_.tag) {
    case UpTag::acknowledge: return acknowledge(child, item_.value, listener);
    case UpTag::cached:
      return listener.on_cached({.rank = rank, .child = child, .id = item_.value, .since = now}, position, now);
    case UpTag::carried:
      if (world_size_ != kRanksThatCarry) return broken(rank, "nothing is carried in a world of so many ranks");
      return listener.on_cached({.rank = rank, .child = child, .id = item_.value, .since = now, .data = item_.data},
                                position, now);
    case UpTag::full: {
      AgreedRequest request = shared(std::move(item_.request));
      if (request->kind == Kind::join) {
        int32_t joining = index_of(rank);
        return listener.on_join({&joining, 1}, request, now);
      }
      Device device = request->device;
      return listener.on_full(
          {.rank = rank, .child = child, .request = std::move(request), .device = device, .since = now}, position, now);
    }
    case UpTag::shutdown: listener.on_shutdown(rank, item_.reason, item_.origin); return {};
  }
  return {};
}

Status Intake::take_subtree(Child child, TimePoint now, IntakeListener& listener) {
  SubtreeItem& item = subtree_item_;
  uint64_t known = acknowledgements_.processed_by(child);
  uint64_t position = item.knows == 0 ? known : item.knows;
  Rank lowest{gathering_.tree().ranks(child).front()};
  if (position < known || position > acknowledgements_.last_number()) {
    return broken(lowest, "a request refers to messages that were never sent");
  }
  switch (item.tag) {
    case SubtreeTag::acknowledge: return acknowledge(child, item.value, listener);
    case SubtreeTag::ids: return take_ids(child, position, now, listener);
    case SubtreeTag::full:
    case SubtreeTag::some: {
      if (Status status = check_ranks(child); !status.ok()) return status;
      Arrival arrival = arrival_of(child, now);
      if (arrival.id != 0) return listener.on_cached(std::move(arrival), position, now);
      arrival.request = shared(std::move(item.request));
      arrival.device = arrival.request->device;
      arrival.devices = devices_of(arrival, position);
      return listener.on_full(std::move(arrival), position, now);
    }
    case SubtreeTag::join:
      if (Status status = check_ranks(child); !status.ok()) return status;
      return listener.on_join(item.ranks, shared(std::move(item.request)), now);
    case SubtreeTag::shutdown: {
      Rank rank{static_cast<int32_t>(item.value)};
      if (gathering_.tree().child_of(rank) != child) return speaks_for_another(lowest, rank);
      listener.on_shutdown(rank, item.reason, item.origin);
      return {};
    }
    case SubtreeTag::knows:
    case SubtreeTag::age: return {};  // these belong to the other items
  }
  return {};
}

Status Intake::take_ids(Child child, uint64_t position, TimePoint now, IntakeListener& listener) {
  for (const IdRun& run : subtree_item_.runs) {
    for (CacheId id = run.first; id - run.first < run.length; id++) {
      Arrival arrival = arrival_of(child, now);
      arrival.id = id;
      if (Status status = listener.on_cached(std::move(arrival), position, now); !status.ok()) return status;
    }
  }
  return {};
}

Status Intake::acknowledge(Child child, uint64_t count, IntakeListener& listener) {
  uint64_t before = acknowledgements_.processed_by(child);
  if (!acknowledgements_.advance(child, count)) {
    return broken(Rank{gathering_.tree().ranks(child).front()}, "it acknowledged messages that were never sent");
  }
  listener.on_acknowledged(before, before + count);
  return {};
}

// Checks that the listed ranks are below the child.
Status Intake::check_ranks(Child child) const {
  if (subtree_item_.tag == SubtreeTag::full) return {};
  for (int32_t rank : subtree_item_.ranks) {
    if (gathering_.tree().child_of(Rank{rank}) == child) continue;
    return speaks_for_another(Rank{gathering_.tree().ranks(child).front()}, Rank{rank});
  }
  return {};
}

// Everything except the request.
Arrival Intake::arrival_of(Child child, TimePoint now) const {
  const SubtreeItem& item = subtree_item_;
  Arrival arrival{.rank = Rank{gathering_.tree().ranks(child).front()}, .child = child};
  arrival.since = before(now, item.age);
  if (item.tag != SubtreeTag::some) return arrival;
  arrival.rank = Rank{item.ranks.front()};
  arrival.some = std::make_unique<const std::vector<int32_t>>(item.ranks);
  arrival.id = item.value;
  return arrival;
}

DeviceMap Intake::devices_of(const Arrival& arrival, uint64_t position) const {
  const std::vector<Device>& listed = subtree_item_.devices;
  if (listed.empty()) return nullptr;
  int32_t set = gathering_set(*arrival.request);
  bool is_late = gathering_.precedes_removal(set, position);
  std::vector<Device> devices(static_cast<size_t>(gathering_.tree().end_rank()), kHost);
  size_t next = 0;
  for (int32_t rank : gathering_.ranks_of(arrival, set, is_late)) {
    devices[static_cast<size_t>(rank)] = listed[next++ % listed.size()];
  }
  return std::make_shared<const std::vector<Device>>(std::move(devices));
}

}  // namespace hvd
