// What a rank holds once the ranks of its host have met: the memory they share, a bell for each of them, and the
// sockets whose end tells that a peer died. Made by rendezvous/, used by transport/. Thread rule: plain value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"

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
};

}  // namespace hvd
