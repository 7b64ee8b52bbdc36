// Chooses the ready tensors that share a plan. Pure. Thread rule: plain functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/request.h"

namespace hvd {

struct FusionItem {
  const Request* request = nullptr;
  const std::vector<Device>* devices = nullptr;  // per rank of the world; null: host memory
  uint64_t bytes = 0;                            // size of the tensor in a fusion buffer
  bool alone = false;                            // an error, or a plan with a result
};

struct FusionSettings {
  int64_t threshold = 0;              // bytes per plan; 0: one plan per tensor
  bool disable_group_fusion = false;  // grouped tensors fuse only within their group
};

// The bytes of a tensor in the fusion buffer; an allgather is estimated from one rank's rows.
uint64_t fused_bytes(const Request& request, int32_t set_size);

// Plans as lists of item indexes: plan k is order[k == 0 ? 0 : ends[k - 1]] up to order[ends[k]].
struct FusedPlans {
  std::vector<uint32_t> order;
  std::vector<uint32_t> ends;
};

// Plans are numbered in the order of their first items. An item goes into the first plan that matches and has room, so
// small tensors can fill earlier plans that later large tensors do not fit into. Reuses the memory of `plans`.
void fuse(std::span<const FusionItem> items, const FusionSettings& settings, FusedPlans& plans);

}  // namespace hvd
