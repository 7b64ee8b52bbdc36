// Where the ranks of a process set are: on which host, and at which index among the members there.
// A *lane* is a row of ranks, one per host, that moves one shard of a tensor between the hosts: lane i is the i-th
// member of every host. There are as many lanes as the smallest host has members.
// Thread rule: plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace hvd {

struct Placement {
  struct Seat {
    size_t host = 0;   // index into `hosts`
    size_t place = 0;  // among the members of that host
  };
  std::vector<int32_t> ranks;               // of the world, by position in the set
  std::vector<Seat> seats;                  // by position
  std::vector<std::vector<int32_t>> hosts;  // positions of each host's members, ascending; hosts by their first member
  size_t lanes = 0;
  int32_t position = -1;  // of this rank
  Seat seat;              // of this rank

  const std::vector<int32_t>& locals() const { return hosts[seat.host]; }
  int32_t rank_at(size_t host, size_t place) const {  // of the world
    return ranks[static_cast<size_t>(hosts[host][place])];
  }
  std::vector<int32_t> lane(size_t place) const;  // ranks of the world, by host
};

// `ranks`: the members, by position; `rank`, of the world, is one of them. host_of[r] is equal for ranks of the same
// host.
Placement place(std::span<const int32_t> ranks, std::span<const int32_t> host_of, int32_t rank);

// All ranks of the set in an order in which no two neighbours, nor the last and the first, share a host. Empty if a
// host has more than half of the members.
std::optional<std::vector<int32_t>> alternating_order(const Placement& placement);

}  // namespace hvd
