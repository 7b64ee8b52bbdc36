// A rank's copy of the plan cache. It changes only as the coordinator's messages say, so all ranks hold the same.
// Thread rule: one caller at a time.
#pragma once

#include <optional>
#include <unordered_map>

#include "model/plan.h"
#include "negotiation/messages.h"
#include "negotiation/name_key.h"

namespace hvd {

class KnownPlans {
 public:
  // 0: not known, or not with this signature.
  CacheId find(const Request& request) const;
  // Null: no such id.
  const AgreedRequest* find(CacheId id) const;
  // `device` is what this rank announced; nothing if it announced nothing.
  void add(CacheId id, AgreedRequest request, std::optional<Device> device);
  bool erase(CacheId id);

 private:
  struct Known {
    CacheId id = 0;
    AgreedRequest request;
    std::optional<Device> device;
  };
  NameMap<Known> by_name_;
  std::unordered_map<CacheId, Known*> by_id_;
};

}  // namespace hvd
