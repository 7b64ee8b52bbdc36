// The coordinator's plan cache: agreed requests under small numbers that all ranks know. A new entry replaces the least
// recently used one that is not pending. An evicted entry stays readable until every rank has acknowledged the message
// that evicted it, so that ids in flight are always understood. Thread rule: one caller at a time.
#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "model/plan.h"
#include "negotiation/messages.h"
#include "negotiation/request_table.h"

namespace hvd {

struct CachedPlan {
  CacheId id = 0;
  AgreedRequest request;
  DeviceMap devices;  // null: host memory
  Entry* entry = nullptr;
  uint64_t evicted_in = 0;  // number of the down message; 0: live
  std::list<CachedPlan>::iterator place;
};

class PlanCache {
 public:
  PlanCache(size_t capacity, RequestTable& table) : capacity_(capacity), table_(table) {}

  // Live or evicted; null: no rank can know this id.
  CachedPlan* find(CacheId id);
  void use(CachedPlan& plan) { live_.splice(live_.begin(), live_, plan.place); }

  // Caches the agreed request of the entry, in the message of that number. Evicted ids are appended to `evicted`. Null:
  // all entries are pending, or there is no cache.
  CachedPlan* add(Entry& entry, AgreedRequest request, DeviceMap devices, uint64_t message,
                  std::vector<CacheId>& evicted);
  // Evicts the entry's plan, if it has one.
  void evict(Entry& entry, uint64_t message, std::vector<CacheId>& evicted);
  // Evicts everything of a process set.
  void evict_set(int32_t process_set, uint64_t message, std::vector<CacheId>& evicted);
  // Call when every rank has processed the messages up to this one.
  void forget_evicted(uint64_t processed_by_all);

  // The oldest message with an eviction that some rank has not acknowledged; 0: none.
  uint64_t awaits() const { return evicted_.empty() ? 0 : evicted_.front().evicted_in; }
  size_t size() const { return live_.size(); }
  size_t evicted_size() const { return evicted_.size(); }

 private:
  bool make_room(uint64_t message, std::vector<CacheId>& evicted);

  size_t capacity_;
  RequestTable& table_;
  CacheId last_id_ = 0;
  std::list<CachedPlan> live_;     // most recently used first
  std::list<CachedPlan> evicted_;  // oldest eviction first
  std::unordered_map<CacheId, CachedPlan*> by_id_;
};

}  // namespace hvd
