#include "launcher/hosts/assignment.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

namespace hvd {

Result<std::vector<Slot>> assign(const std::vector<Host>& hosts, int num_proc) {
  std::vector<Slot> slots;
  std::map<int, int> cross_sizes;  // by local rank
  for (const Host& host : hosts) {
    int local_size = std::min(host.slots, num_proc - static_cast<int>(slots.size()));
    for (int local_rank = 0; local_rank < local_size; ++local_rank) {
      slots.push_back({.host = host.name,
                       .rank = static_cast<int>(slots.size()),
                       .size = num_proc,
                       .local_rank = local_rank,
                       .local_size = local_size,
                       .cross_rank = cross_sizes[local_rank]++});
    }
  }
  if (static_cast<int>(slots.size()) < num_proc)
    return Status(Code::invalid_argument, fmt::format("{} processes requested, but the hosts have {} slots; "
                                                      "add slots with -H or lower -np",
                                                      num_proc, slots.size()));
  for (Slot& slot : slots) slot.cross_size = cross_sizes[slot.local_rank];
  return slots;
}

}  // namespace hvd
