// Forms a world from the environment. The ranks of a host meet over a Unix socket (host_meeting.h). If there are
// several hosts, their leaders meet through the store and connect in a tree (leaders_meeting.h); every rank gets the
// table of all hosts and opens the data connections that common algorithms need. It either succeeds on all ranks or
// fails with the same message on all that can be reached. A world of one host opens no network socket and needs no
// store. Blocks for the start time-out and a little more at most. Thread rule: any thread.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/config.h"
#include "model/host_group.h"
#include "model/world.h"
#include "net/control_link.h"
#include "net/dialer.h"
#include "net/host_table.h"

namespace hvd {

class StoreServer;

struct WorldGroup {
  HostGroup host;
  std::vector<int32_t> host_of_rank;  // index of the host, by rank of the world
  bool is_homogeneous = true;
  bool crowded = false;  // see World; the same on all ranks of a host

  // The rest is only used in worlds of several hosts.
  std::vector<HostRecord> hosts;
  std::unique_ptr<ControlLink> parent;                                     // leaders below the root of the tree
  std::vector<std::pair<int32_t, std::unique_ptr<ControlLink>>> children;  // leaders; by index of their host
  std::unique_ptr<Dialer> dialer;
  std::vector<std::pair<int32_t, std::vector<std::unique_ptr<Stream>>>> streams;  // already open, by rank
  std::shared_ptr<StoreServer> store;                                             // if rank 0 hosts it
};

// `memory`: the leader of a host passes the shared memory for its ranks; the others pass none. `interrupt`: a
// descriptor that ends every wait for others when it becomes readable; -1: none.
Result<WorldGroup> form_world(const World& world, const Config& config, UniqueFd memory, int interrupt = -1);

// The ranks that `rank` exchanges data with in common algorithms: those with its local rank on the next and previous
// host and on the hosts a power of two away.
std::vector<int32_t> usual_peers(const std::vector<HostRecord>& hosts, int32_t rank);

}  // namespace hvd
