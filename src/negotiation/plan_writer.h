// Writes ready requests as plans: fuses them, assigns cache ids, and encodes them, after the evictions.
// Thread rule: one caller at a time.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/wire.h"
#include "negotiation/fusion.h"
#include "negotiation/messages.h"
#include "negotiation/plan_cache.h"
#include "negotiation/readiness.h"

namespace hvd {

class PlanWriter {
 public:
  PlanWriter(const Subtrees& tree, PlanCache& cache) : tree_(tree), cache_(cache) {}

  // Into the down message of that number.
  void write(Encoder& out, std::span<const Ready> ready, const FusionSettings& fusion, bool use_cache,
             uint64_t message);

 private:
  struct Tensor {
    CacheId id;
    const Request* request;  // null: the ranks know the id
  };

  void write_plan(Encoder& out, std::span<const Ready> ready, std::span<const uint32_t> members, bool use_cache,
                  uint64_t message);
  Tensor identify(const Ready& item, const DeviceMap& devices, bool use_cache, uint64_t message);
  DeviceMap devices_of(const Ready& item) const;
  void write_devices_of(Encoder& out, const std::vector<Device>& map);

  const Subtrees& tree_;
  PlanCache& cache_;
  std::map<std::vector<Device>, uint32_t> map_numbers_;  // of the device maps that the ranks know

  // Reused between calls to avoid allocation.
  std::vector<FusionItem> items_;
  std::vector<DeviceMap> devices_;  // of each ready item; null: in host memory
  FusedPlans plans_;
  std::vector<Tensor> tensors_;
  std::vector<CacheId> evicted_;
};

}  // namespace hvd
