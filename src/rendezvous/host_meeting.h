// The ranks of one host meet: local rank 0, the leader, listens on a Unix socket without a file (abstract name), the
// others come, and each is handed the shared memory and everybody's bell. The sockets stay open: their end tells that a
// process died. What decides how the ranks exchange data is settled here, for all of them: knobs are compared, and the
// cores of all ranks tell whether the host is crowded. Only processes of the same user are let in, which the kernel
// vouches for (SO_PEERCRED), and only those that have the job's key, where it has one (host_greeting.h). Strangers that
// come first, send garbage or nothing do not delay the ranks. Blocks until all have come or the time is up; the error
// names the missing ranks. Thread rule: any thread.
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "model/config.h"
#include "model/core_masks.h"
#include "model/host_group.h"
#include "model/shared_knobs.h"
#include "model/world.h"

namespace hvd {

// What a rank brings along.
struct HostArrival {
  uint16_t port = 0;              // where it listens for other hosts; 0: the world is this host
  std::vector<SharedKnob> knobs;  // that have to be the same on all ranks of the host
  CoreMask cores;                 // that it may use
};

struct HostMeeting {
  HostGroup group;                   // of rank_names only those of this host
  bool crowded = false;              // the same on all ranks: some of them have to share a core
  std::vector<int32_t> pids;         // leader: by local rank
  std::vector<HostArrival> arrived;  // leader: by local rank
};

// `memory` is what the leader brings along for all; the others pass none. `interrupt`: a descriptor that ends the
// meeting when it becomes readable; -1: none.
Result<HostMeeting> meet_on_host(const World& world, const Config& config, UniqueFd memory, HostArrival own,
                                 TimePoint deadline, int interrupt = -1);

}  // namespace hvd
