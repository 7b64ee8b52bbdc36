#include "negotiation/plan_cache.h"

#include <utility>

namespace hvd {

CachedPlan* PlanCache::find(CacheId id) {
  auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

CachedPlan* PlanCache::add(Entry& entry, AgreedRequest request, DeviceMap devices, uint64_t message,
                           std::vector<CacheId>& evicted) {
  evict(entry, message, evicted);
  if (!make_room(message, evicted)) return nullptr;
  CachedPlan& plan = live_.emplace_front();
  plan.id = ++last_id_;
  plan.request = std::move(request);
  plan.devices = std::move(devices);
  plan.entry = &entry;
  plan.place = live_.begin();
  entry.cached = &plan;
  by_id_.emplace(plan.id, &plan);
  return &plan;
}

bool PlanCache::make_room(uint64_t message, std::vector<CacheId>& evicted) {
  if (live_.size() < capacity_) return true;
  for (auto plan = live_.rbegin(); plan != live_.rend(); ++plan) {
    if (plan->entry->state != Entry::State::idle) continue;
    evict(*plan->entry, message, evicted);
    return true;
  }
  return false;
}

void PlanCache::evict(Entry& entry, uint64_t message, std::vector<CacheId>& evicted) {
  if (entry.cached == nullptr) return;
  CachedPlan& plan = *std::exchange(entry.cached, nullptr);
  plan.evicted_in = message;
  entry.evicted_plans++;
  evicted.push_back(plan.id);
  evicted_.splice(evicted_.end(), live_, plan.place);
}

void PlanCache::evict_set(int32_t process_set, uint64_t message, std::vector<CacheId>& evicted) {
  for (auto next = live_.begin(); next != live_.end();) {
    Entry& entry = *(next++)->entry;
    if (entry.key.process_set == process_set) evict(entry, message, evicted);
  }
}

void PlanCache::forget_evicted(uint64_t processed_by_all) {
  while (!evicted_.empty() && evicted_.front().evicted_in <= processed_by_all) {
    CachedPlan& plan = evicted_.front();
    Entry& entry = *plan.entry;
    by_id_.erase(plan.id);
    evicted_.pop_front();
    entry.evicted_plans--;
    table_.release(entry);
  }
}

}  // namespace hvd
