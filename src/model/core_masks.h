// Which cores each rank may use, and whether the ranks have enough of them. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace hvd {

using CoreMask = std::vector<uint64_t>;  // bit c % 64 of word c / 64 is core c

CoreMask mask_of(const std::vector<int>& cores);
CoreMask own_cores();  // of this process: its affinity

// Whether some of the ranks have to share a core: there is no way to give each a core of its own out of its mask. Ranks
// with cores of their own never do, and neither do ranks that may use the same cores, if these are enough.
bool must_share_cores(const std::vector<CoreMask>& masks);

}  // namespace hvd
