// The negotiation tree of the fuzzers: the root has rank 0 and a node below it, and that has ranks 1 and 2 and a node
// with ranks 3 and 4.
#pragma once

#include <cstdint>
#include <vector>

#include "negotiation/aggregator.h"
#include "negotiation/coordinator.h"

namespace hvd {

constexpr int32_t kTreeRanks = 5;

inline const std::vector<std::vector<int32_t>>& below_root() {
  static const std::vector<std::vector<int32_t>> children{{0}, {1, 2, 3, 4}};
  return children;
}
inline const std::vector<std::vector<int32_t>>& below_node() {
  static const std::vector<std::vector<int32_t>> children{{1}, {2}, {3, 4}};
  return children;
}

inline CoordinatorSettings tree_settings() {
  CoordinatorSettings settings;
  settings.cache_capacity = 2;
  settings.stall_shutdown = std::chrono::hours(1);
  settings.collective_timeout = std::chrono::minutes(10);
  return settings;
}
inline AggregatorSettings node_settings() { return {.hold = hold_time(tree_settings())}; }

}  // namespace hvd
