// The tree over the hosts of a world, along which requests climb to the root and plans come down. Host 0, that of rank
// 0, is the root. A subtree is a run of consecutive hosts that begins with its top; what is below the top is dealt
// evenly to its children, so that the tree is as low as its fan-out allows. Every host computes its own place. Thread
// rule: plain functions.
#pragma once

#include <cstdint>
#include <vector>

namespace hvd {

// A host hears of so many others at most. benchmarks/scale shows what other values cost.
inline constexpr int32_t kHostFanOut = 16;

struct HostPlace {
  int32_t parent = -1;  // -1: the root
  int32_t depth = 0;    // hosts above it
  std::vector<int32_t> children;
  int32_t end = 0;  // the subtree is this host up to, but not including, this one
};

HostPlace place_of_host(int32_t host, int32_t hosts, int32_t fan_out = kHostFanOut);

// The ranks below each child of the negotiation node on the host: first each rank of the host by itself, then for each
// child of the host all ranks of its subtree, sorted. `ranks` are those of each host.
std::vector<std::vector<int32_t>> ranks_below(int32_t host, const std::vector<std::vector<int32_t>>& ranks,
                                              int32_t fan_out = kHostFanOut);

}  // namespace hvd
