// A rank's copy of the plan cache. Only the coordinator's messages change it, so all copies are equal.
// Thread rule: one caller at a time.
#pragma once

#include <optional>
#include <unordered_map>

#include "model/plan.h"
#include "negotiation/carried.h"
#include "negotiation/messages.h"
#include "negotiation/name_key.h"

namespace hvd {

struct KnownPlan {
  CacheId id = 0;
  AgreedRequest request;
  std::optional<Device> device;
  CarriedAtRank carried;
};

class KnownPlans {
 public:
  // Null: unknown, or not with this signature.
  KnownPlan* find(const Request& request);
  // Null: no such id.
  KnownPlan* find(CacheId id);
  // `device`: the device that this rank announced; empty if it announced nothing.
  void add(CacheId id, AgreedRequest request, std::optional<Device> device);
  bool erase(CacheId id);

 private:
  NameMap<KnownPlan> by_name_;
  std::unordered_map<CacheId, KnownPlan*> by_id_;
};

}  // namespace hvd
