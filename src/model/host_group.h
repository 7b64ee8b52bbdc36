// What a rank has after the ranks of its host have met: their shared memory, a bell for each rank, and sockets that
// close when a peer dies. Created by rendezvous/, used by transport/. Thread rule: plain value.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/origin.h"

namespace hvd {

struct RankPlace {
  std::string host;
  int64_t pid = 0;
};

struct HostGroup {
  int32_t rank = 0, size = 1;           // among the ranks of this host; 0 is the root
  UniqueFd memory;                      // memfd; its first pages are the control block
  std::vector<UniqueFd> bells;          // eventfd of each rank
  std::vector<UniqueFd> sockets;        // by rank; the root has one to every other rank, the others one to the root
  std::vector<int32_t> world_ranks;     // of each rank here
  std::vector<std::string> rank_names;  // "rank 3 (hostb, pid 4711)", by rank of the world
  std::vector<RankPlace> places;        // the same as data

  int32_t world_rank(int32_t local) const { return world_ranks[static_cast<size_t>(local)]; }
  const std::string& name_of(int32_t world_rank) const { return rank_names[static_cast<size_t>(world_rank)]; }
  // Fills in host and pid of the origin's rank if they are known.
  Origin placed(Origin origin) const {
    if (origin.rank >= 0 && static_cast<size_t>(origin.rank) < places.size()) {
      const RankPlace& place = places[static_cast<size_t>(origin.rank)];
      origin.host = place.host;
      origin.pid = place.pid;
    }
    return origin;
  }
  Origin origin_of(OriginKind kind, int32_t world_rank, std::string text = {}) const {
    return placed({.kind = kind, .rank = world_rank, .text = std::move(text)});
  }
};

}  // namespace hvd
