// A rank's copy of the plan cache. It changes only as the coordinator's messages say, so all ranks hold the same.
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
  // Null: not known, or not with this signature.
  KnownPlan* find(const Request& request);
  // Null: no such id.
  KnownPlan* find(CacheId id);
  // `device` is what this rank announced; nothing if it announced nothing.
  void add(CacheId id, AgreedRequest request, std::optional<Device> device);
  bool erase(CacheId id);

 private:
  NameMap<KnownPlan> by_name_;
  std::unordered_map<CacheId, KnownPlan*> by_id_;
};

}  // namespace hvd
