// The ranks of one host meet: local rank 0, the leader, listens on a Unix socket without a file (abstract name), the
// others come, and each is handed the shared memory and everybody's bell. The sockets stay open: their end tells that a
// process died. Only processes of the same user are let in, which the kernel vouches for (SO_PEERCRED). Blocks until
// all have come or the time is up; the error names who is missing. Thread rule: any thread.
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "model/host_group.h"
#include "model/world.h"

namespace hvd {

struct HostMeeting {
  HostGroup group;              // of rank_names only those of this host
  std::vector<int32_t> pids;    // leader: by local rank
  std::vector<uint16_t> ports;  // leader: where each rank listens for other hosts
};

// `memory` is what the leader brings along for all; the others pass none. `port`: where this rank listens for other
// hosts; 0: the world is this host. `interrupt`: a descriptor that ends the meeting when it becomes readable; -1: none.
Result<HostMeeting> meet_on_host(const World& world, UniqueFd memory, uint16_t port, TimePoint deadline,
                                 int interrupt = -1);

}  // namespace hvd
