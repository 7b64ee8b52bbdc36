#include "negotiation/down_reader.h"

#include <memory>
#include <utility>

namespace hvd {

Status DownReader::read(ByteView message, uint64_t number, DownListener& listener) {
  Decoder in(message);
  if (in.varint() != number) in.fail();
  while (in.ok() && !in.at_end()) read_item(in, number, listener);
  if (in.ok()) return {};
  return {Code::unknown, "the coordinator sent bytes that are not its next negotiation message"};
}

void DownReader::read_item(Decoder& in, uint64_t number, DownListener& listener) {
  switch (in.one_of(kLastDownTag)) {
    case DownTag::plan: return read_plan(in, number, listener);
    case DownTag::evicted:
      for (CacheId id : read_evicted(in)) {
        auto found = ids_.find(id);
        if (found == ids_.end() || found->second.evicted_in != 0) {
          in.fail();
          return;
        }
        found->second.evicted_in = number;
        evictions_.push_back({number, id});
        listener.on_evicted(found->second, id);
      }
      return;
    case DownTag::offer: in.fail(); return;  // nothing is carried in worlds of so many ranks
    case DownTag::devices:
      if (read_devices(in, device_maps_, static_cast<size_t>(world_size_)).number > device_maps_) device_maps_++;
      return;
    case DownTag::tuning: read_tuning(in); return;
    case DownTag::stall: read_stall(in); return;
    case DownTag::shutdown:
      read_shutdown(in, world_size_);
      if (in.ok()) listener.on_shutdown_notice();
      return;
  }
}

void DownReader::read_plan(Decoder& in, uint64_t number, DownListener& listener) {
  PlanHead head = read_plan_head(in);
  for (size_t i = 0; i < head.tensors && in.ok(); i++) {
    KnownId tensor = read_tensor(in);
    if (!in.ok()) return;
    bool is_ok = head.error == Code::ok;
    if (!listener.on_ended({*tensor.request, tensor.entry, is_ok, head.result, number})) in.fail();
  }
}

// Without an entry if it has no id.
KnownId DownReader::read_tensor(Decoder& in) {
  TensorHead head = read_tensor_head(in);
  if (!in.ok()) return {};
  if (!head.with_request) {
    auto found = ids_.find(head.id);
    if (found == ids_.end() || found->second.evicted_in != 0) in.fail();
    return in.ok() ? found->second : KnownId();
  }
  KnownId tensor{.request = std::make_shared<const Request>(read_request(in))};
  if (head.id != 0 && head.id <= last_id_) in.fail();
  if (!in.ok() || head.id == 0) return tensor;
  last_id_ = head.id;
  tensor.entry = &table_.find_or_add({gathering_set(*tensor.request), tensor.request->name});
  tensor.entry->evicted_plans++;
  ids_.emplace(head.id, tensor);
  return tensor;
}

const KnownId* DownReader::find(CacheId id) const {
  auto found = ids_.find(id);
  return found == ids_.end() ? nullptr : &found->second;
}

void DownReader::forget_evicted(uint64_t processed_by_all) {
  while (!evictions_.empty() && evictions_.front().message <= processed_by_all) {
    auto found = ids_.find(evictions_.front().id);
    Entry& entry = *found->second.entry;
    ids_.erase(found);
    evictions_.pop_front();
    entry.evicted_plans--;
    table_.release(entry);
  }
}

}  // namespace hvd
