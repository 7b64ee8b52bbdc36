#include "collectives/placement.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <numeric>

namespace hvd {

Placement place(std::span<const int32_t> ranks, std::span<const int32_t> host_of, int32_t rank) {
  Placement placement;
  placement.ranks.assign(ranks.begin(), ranks.end());
  std::map<int32_t, size_t> index;
  for (size_t p = 0; p < ranks.size(); p++) {
    size_t host = index.try_emplace(host_of[static_cast<size_t>(ranks[p])], index.size()).first->second;
    if (host == placement.hosts.size()) placement.hosts.emplace_back();
    placement.seats.push_back({.host = host, .place = placement.hosts[host].size()});
    placement.hosts[host].push_back(static_cast<int32_t>(p));
    if (ranks[p] == rank) placement.position = static_cast<int32_t>(p);
  }
  assert(placement.position >= 0);
  placement.seat = placement.seats[static_cast<size_t>(placement.position)];
  auto smallest = std::min_element(placement.hosts.begin(), placement.hosts.end(),
                                   [](const auto& a, const auto& b) { return a.size() < b.size(); });
  placement.lanes = smallest->size();
  return placement;
}

std::vector<int32_t> Placement::lane(size_t place) const {
  std::vector<int32_t> lane;
  for (size_t host = 0; host < hosts.size(); host++) lane.push_back(rank_at(host, place));
  return lane;
}

// Places the members, host by host, the largest host first, on the even seats of the ring and then on the odd ones. A
// host's members are consecutive in that sequence; only a host with more than half of them would be next to itself.
std::optional<std::vector<int32_t>> alternating_order(const Placement& placement) {
  std::vector<size_t> hosts(placement.hosts.size());
  std::iota(hosts.begin(), hosts.end(), size_t{0});
  std::stable_sort(hosts.begin(), hosts.end(),
                   [&](size_t a, size_t b) { return placement.hosts[a].size() > placement.hosts[b].size(); });
  size_t count = placement.ranks.size();
  if (2 * placement.hosts[hosts[0]].size() > count) return std::nullopt;
  std::vector<int32_t> order(count);
  size_t seat = 0;
  for (size_t host : hosts) {
    for (int32_t position : placement.hosts[host]) {
      order[seat] = placement.ranks[static_cast<size_t>(position)];
      seat = seat + 2 < count ? seat + 2 : 1;
    }
  }
  return order;
}

}  // namespace hvd
