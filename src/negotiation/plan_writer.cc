#include "negotiation/plan_writer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "negotiation/signature.h"

namespace hvd {
namespace {

bool same_devices(const DeviceMap& a, const DeviceMap& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

// The names of transfers are not repeated.
bool is_cacheable(Kind kind) { return (moves_data(kind) && kind != Kind::transfer) || kind == Kind::barrier; }

}  // namespace

void PlanWriter::write(Encoder& out, std::span<const Ready> ready, const FusionSettings& fusion, bool use_cache,
                       uint64_t message) {
  items_.clear();
  devices_.resize(ready.size());
  for (size_t i = 0; i < ready.size(); i++) {
    const Ready& item = ready[i];
    bool alone = !item.error.ok() || item.entry == nullptr;
    bool on_host = alone || item.request->device == kHost;
    devices_[i] = on_host ? nullptr : devices_of(item);
    items_.push_back({.request = item.request.get(),
                      .devices = devices_[i].get(),
                      .bytes = alone ? 0 : fused_bytes(*item.request, item.entry->set_size),
                      .alone = alone});
  }
  fuse(items_, fusion, plans_);
  std::span<const uint32_t> order = plans_.order;
  uint32_t start = 0;
  for (uint32_t end : plans_.ends) {
    write_plan(out, ready, order.subspan(start, end - start), use_cache, message);
    start = end;
  }
}

void PlanWriter::write_plan(Encoder& out, std::span<const Ready> ready, std::span<const uint32_t> members,
                            bool use_cache, uint64_t message) {
  const Ready& first = ready[members.front()];
  tensors_.clear();
  evicted_.clear();
  for (uint32_t member : members) tensors_.push_back(identify(ready[member], devices_[member], use_cache, message));
  if (first.error.ok() && removes_set(first.request->kind)) {
    cache_.evict_set(first.request->process_set, message, evicted_);
  }
  if (!evicted_.empty()) write_evicted(out, evicted_);
  bool is_on_device = first.error.ok() && devices_[members.front()] != nullptr;
  if (is_on_device) write_devices_of(out, *devices_[members.front()]);
  write_plan_head(out, {.tensors = tensors_.size(),
                        .error = first.error.code(),
                        .error_text = first.error.message(),
                        .error_origin = first.error.origin(),
                        .result = first.result});
  for (const Tensor& tensor : tensors_) write_tensor(out, tensor.id, tensor.request);
}

PlanWriter::Tensor PlanWriter::identify(const Ready& item, const DeviceMap& devices, bool use_cache, uint64_t message) {
  Tensor in_full{.id = 0, .request = item.request.get()};
  if (item.entry == nullptr) return in_full;
  if (!item.error.ok()) {
    cache_.evict(*item.entry, message, evicted_);
    return in_full;
  }
  if (!use_cache || !is_cacheable(item.request->kind)) return in_full;
  CachedPlan* cached = item.entry->cached;
  bool is_known = cached != nullptr && same_devices(cached->devices, devices) &&
                  (cached->request == item.request || same_signature(*cached->request, *item.request));
  if (is_known) {
    cache_.use(*cached);
    return {.id = cached->id, .request = nullptr};
  }
  CachedPlan* added = cache_.add(*item.entry, item.request, devices, message, evicted_);
  return {.id = added != nullptr ? added->id : 0, .request = item.request.get()};
}

void PlanWriter::write_devices_of(Encoder& out, const std::vector<Device>& map) {
  auto [place, is_new] = map_numbers_.try_emplace(map, static_cast<uint32_t>(map_numbers_.size() + 1));
  write_devices(out, place->second, is_new ? &map : nullptr);
}

// Joined ranks did not specify a device; they count as host, which is unambiguous for such a tensor.
DeviceMap PlanWriter::devices_of(const Ready& item) const {
  const Entry& entry = *item.entry;
  const DeviceMap& first = entry.arrivals.front().devices;
  auto is_first = [&](const Arrival& arrival) { return arrival.devices == first; };
  bool are_those_of_the_cache = first != nullptr && entry.submitted.size() == entry.set_size &&
                                std::all_of(entry.arrivals.begin(), entry.arrivals.end(), is_first);
  if (are_those_of_the_cache) return first;
  std::vector<Device> devices(static_cast<size_t>(tree_.end_rank()), kHost);
  for (const Arrival& arrival : entry.arrivals) {
    for (int32_t rank : arrival.some != nullptr ? std::span(*arrival.some) : tree_.ranks(arrival.child)) {
      if (entry.submitted.contains(Rank{rank})) devices[static_cast<size_t>(rank)] = arrival.device_of(Rank{rank});
    }
  }
  return std::make_shared<const std::vector<Device>>(std::move(devices));
}

}  // namespace hvd
