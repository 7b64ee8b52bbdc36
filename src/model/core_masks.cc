#include "model/core_masks.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/cores.h"

namespace hvd {
namespace {

std::vector<size_t> cores_in(const CoreMask& mask) {
  std::vector<size_t> cores;
  for (size_t word = 0; word < mask.size(); word++) {
    for (uint64_t left = mask[word]; left != 0; left &= left - 1) {
      cores.push_back(word * 64 + static_cast<size_t>(std::countr_zero(left)));
    }
  }
  return cores;
}

// Assigns ranks to cores one by one. If all cores of a rank are taken, one of their owners moves to another core if it
// can (Kuhn's algorithm for bipartite matching).
class CoreMatching {
 public:
  explicit CoreMatching(size_t cores) : owner_(cores, kNobody), asked_(cores) {}

  bool place(size_t rank, const std::vector<std::vector<size_t>>& usable) {
    std::fill(asked_.begin(), asked_.end(), false);
    return find_core(rank, usable);
  }

 private:
  static constexpr size_t kNobody = SIZE_MAX;

  bool find_core(size_t rank, const std::vector<std::vector<size_t>>& usable) {
    for (size_t core : usable[rank]) {
      if (owner_[core] == kNobody) return owner_[core] = rank, true;
    }
    for (size_t core : usable[rank]) {
      if (asked_[core]) continue;
      asked_[core] = true;
      if (find_core(owner_[core], usable)) return owner_[core] = rank, true;
    }
    return false;
  }

  std::vector<size_t> owner_;  // by core
  std::vector<bool> asked_;    // by core, while one rank is placed
};

}  // namespace

CoreMask mask_of(const std::vector<int>& cores) {
  CoreMask mask;
  for (int core : cores) {
    size_t word = static_cast<size_t>(core) / 64;
    if (mask.size() <= word) mask.resize(word + 1);
    mask[word] |= uint64_t{1} << (core % 64);
  }
  return mask;
}

CoreMask own_cores() {
  std::vector<int> cores = usable_cores();
  if (cores.empty()) {  // the kernel gives no mask
    cores.resize(static_cast<size_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))));
    std::iota(cores.begin(), cores.end(), 0);
  }
  return mask_of(cores);
}

bool must_share_cores(const std::vector<CoreMask>& masks) {
  CoreMask all;
  for (const CoreMask& mask : masks) {
    all.resize(std::max(all.size(), mask.size()));
    for (size_t word = 0; word < mask.size(); word++) all[word] |= mask[word];
  }
  std::vector<size_t> in_use = cores_in(all);
  if (in_use.size() < masks.size()) return true;
  std::vector<std::vector<size_t>> usable;
  for (const CoreMask& mask : masks) usable.push_back(cores_in(mask));
  // Ranks with the fewest choices come first, so that few ranks have to move.
  std::sort(usable.begin(), usable.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  CoreMatching matching(all.size() * 64);
  for (size_t rank = 0; rank < usable.size(); rank++) {
    if (!matching.place(rank, usable)) return true;
  }
  return false;
}

}  // namespace hvd
