// The ranks of one host meet: local rank 0, the leader, listens on a Unix socket without a file (abstract name). The
// others connect, and each receives the shared memory and the bells of all ranks. The sockets stay open: when one
// closes, its process has died. The meeting also settles how the ranks exchange data: it compares their knobs, and
// determines from the cores of all ranks whether the host is crowded. Only processes of the same user are accepted, as
// reported by the kernel (SO_PEERCRED), and only with the job's key, if there is one (host_greeting.h). Other processes
// that connect first, send garbage or nothing do not delay the ranks. Blocks until all ranks have connected or the time
// is up; the error names the missing ranks. Thread rule: any thread.
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "model/config.h"
#include "model/core_masks.h"
#include "model/host_group.h"
#include "model/shared_knobs.h"
#include "model/world.h"

namespace hvd {

// What a rank sends to the leader.
struct HostArrival {
  uint16_t port = 0;              // where it listens for other hosts; 0: the world has one host
  std::vector<SharedKnob> knobs;  // that must be the same on all ranks of the host
  CoreMask cores;                 // cores that it may use
};

struct HostMeeting {
  HostGroup group;                   // rank_names has only those of this host
  bool crowded = false;              // the same on all ranks: some of them must share a core
  std::vector<int32_t> pids;         // leader: by local rank
  std::vector<HostArrival> arrived;  // leader: by local rank
};

// `memory`: the leader passes the shared memory for all ranks; the others pass none. `interrupt`: a descriptor that
// ends the meeting when it becomes readable; -1: none.
Result<HostMeeting> meet_on_host(const World& world, const Config& config, UniqueFd memory, HostArrival own,
                                 TimePoint deadline, int interrupt = -1);

}  // namespace hvd
