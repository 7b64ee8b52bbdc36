// A plan: what all ranks agreed to do next, the same on every rank and in the same order. Thread rule: plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "model/request.h"

namespace hvd {

using AgreedRequest = std::shared_ptr<const Request>;  // shared by the plan cache and the plans being executed

// The devices of a plan's tensors: one for each rank of the world, kHost for ranks that have joined or are not members.
// On all ranks, equal numbers mean equal maps.
struct DevicePlaces {
  uint32_t number = 0;  // 0: in host memory
  std::shared_ptr<const std::vector<Device>> map;
};

struct Plan {
  // Fused tensors: same kind, dtype, device, reduce op, factors, root and process set, so tensors.front() describes all
  // of them. For allgather and alltoall the first dimensions are those of one rank; the ranks exchange theirs.
  std::vector<AgreedRequest> tensors;
  // Not ok: nothing is executed. Every rank with a pending operation of these names fails it with this code and text.
  Code error = Code::ok;
  std::string error_text;
  Origin error_origin = {};
  DevicePlaces places;
  bool is_cached = false;  // the ranks knew all its tensors by number
  int32_t result = -1;     // join: the rank that joined last; add_process_set: the id of the new set

  const Request& first() const { return *tensors.front(); }
};

// Parameters that the autotuner may change during the job. They take effect between two plans, on all ranks at once.
struct Tuning {
  int64_t fusion_threshold = 128 << 20;  // bytes
  double cycle_time_ms = 0;              // linger before fusing
  bool cache_enabled = true;
  int64_t one_shot_limit = 32 << 10;  // bytes: larger tensors go through the chunk pipeline

  bool operator==(const Tuning&) const = default;
};

struct StallReport {
  std::string text;
  std::vector<int32_t> missing = {};  // ranks that others wait for, sorted
};

struct ShutdownNotice {
  int32_t rank = -1;  // the rank that requested it; -1: the stall inspector
  std::string reason;
  Origin origin = {};
};

// What the root of the negotiation sends to every rank, in order.
using Decision = std::variant<Plan, Tuning, StallReport, ShutdownNotice>;

}  // namespace hvd
