// How the ranks of a communicator find each other. The id holds the address of a thread in the process that made it;
// all ranks report to that thread, which sends everybody the list. Then each pair of ranks makes two connections.
#pragma once

#include <string>
#include <vector>

#include "nccl/sockets.h"
#include "nccl_declarations.h"

namespace standin::nccl {

// What a rank tells the others about itself.
struct Member {
  uint64_t secret;  // of the id
  int ranks, rank;
  Address address;
  char host[64];
  int gpu;
  int version;
};

// The two connections to a peer: the data of operations, and notices that arrive at any time.
struct Link {
  Socket data, control;
};

UniqueId make_id();
bool is_id(const UniqueId& id);
uint64_t secret_of(const UniqueId& id);

struct Joined {
  int result = kSuccess;
  std::string reason;
  std::vector<Member> members;
  std::vector<Link> links;  // by rank; the own one is empty
};
// Blocks until all ranks have come.
Joined join(const UniqueId& id, int ranks, int rank, int gpu, int version, const Stop& stop);

}  // namespace standin::nccl
