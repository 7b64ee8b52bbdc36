// The tree of the hosts of a world: requests go up to the root and plans come down. The root is host 0, which has rank
// 0. A subtree is a run of consecutive hosts that begins with its top; the hosts below the top are divided evenly among
// its children, so the tree is as low as its fan-out allows. Every host computes its own position. Thread rule: plain
// functions.
#pragma once

#include <cstdint>
#include <vector>

namespace hvd {

// The most children of a host. benchmarks/scale shows what other values cost.
inline constexpr int32_t kHostFanOut = 16;

struct HostPlace {
  int32_t parent = -1;  // -1: the root
  int32_t depth = 0;    // hosts above it
  std::vector<int32_t> children;
  int32_t end = 0;  // the subtree is from this host up to, but not including, `end`
};

HostPlace place_of_host(int32_t host, int32_t hosts, int32_t fan_out = kHostFanOut);

// The ranks below each child of the negotiation node on the host: first each rank of the host by itself, then for each
// child of the host all ranks of its subtree, sorted. `ranks` are those of each host.
std::vector<std::vector<int32_t>> ranks_below(int32_t host, const std::vector<std::vector<int32_t>>& ranks,
                                              int32_t fan_out = kHostFanOut);

}  // namespace hvd
