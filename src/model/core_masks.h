// Which cores each rank may use, and whether the ranks have enough of them. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace hvd {

using CoreMask = std::vector<uint64_t>;  // bit c % 64 of word c / 64 is core c

CoreMask mask_of(const std::vector<int>& cores);
CoreMask own_cores();  // of this process: its affinity

// Whether some ranks must share a core: there is no assignment that gives each rank a core of its own from its mask.
// Ranks may be allowed to use the same cores, as long as there are enough of them.
bool must_share_cores(const std::vector<CoreMask>& masks);

}  // namespace hvd
