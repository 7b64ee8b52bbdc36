// The tree in which the hosts of a world are connected: host 0 is the root. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace hvd {

inline constexpr int32_t kHostFanOut = 8;

inline int32_t parent_of(int32_t host) { return host == 0 ? -1 : (host - 1) / kHostFanOut; }
inline std::vector<int32_t> children_of(int32_t host, int32_t hosts) {
  std::vector<int32_t> children;
  for (int32_t i = 1; i <= kHostFanOut && int64_t{host} * kHostFanOut + i < hosts; i++) {
    children.push_back(host * kHostFanOut + i);
  }
  return children;
}

}  // namespace hvd
