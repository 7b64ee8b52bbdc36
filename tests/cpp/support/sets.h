// Runs the members of one process set on threads that play the ranks of several hosts.
#pragma once

#include <algorithm>
#include <latch>
#include <vector>

#include "collectives/world_collectives.h"
#include "support/ranks.h"

namespace hvd::test {

struct SetOfHosts {
  std::vector<int32_t> hosts;         // ranks on each
  std::vector<int32_t> members = {};  // ranks of the world, by position; empty: all
  bool flat = false;
};

// Small enough that a few KiB reach every path.
inline WorldSettings small_world() {
  return {.one_shot_limit = 512, .round = 1024, .lane_bytes = 64, .cross = {.doubling_limit = 192, .segment = 256}};
}

inline std::vector<int32_t> hosts_of(const std::vector<int32_t>& ranks_per_host) {
  std::vector<int32_t> host_of;
  for (size_t host = 0; host < ranks_per_host.size(); host++) {
    host_of.insert(host_of.end(), static_cast<size_t>(ranks_per_host[host]), static_cast<int32_t>(host));
  }
  return host_of;
}

// `body` runs on the members. `stay`: no rank leaves before all are done, so that leaving is not a failure.
inline void run_set(const SetOfHosts& set, const std::function<void(RankContext)>& body, bool stay = true) {
  std::vector<int32_t> host_of = hosts_of(set.hosts), members = set.members;
  if (members.empty()) {
    members.resize(host_of.size());
    std::iota(members.begin(), members.end(), 0);
  }
  std::latch done(static_cast<ptrdiff_t>(host_of.size()));
  HostsOptions options;
  options.goodbye = stay;
  run_hosts(set.hosts, options, [&](Transport& net, int32_t rank) {
    std::vector<int32_t> locals;
    for (int32_t member : members) {
      for (int32_t r = 0; r < net.size(); r++) {
        if (net.world_rank(r) == member) locals.push_back(r);
      }
    }
    if (!locals.empty()) {
      auto channel = net.channels().open(0, locals);
      EXPECT_TRUE(channel.ok()) << channel.status().message();
      if (*channel != nullptr) {
        WorldSettings settings = small_world();
        settings.flat_allreduce = settings.flat_allgather = set.flat;
        WorldCollectives collectives(net, **channel, place(members, host_of, rank), settings);
        body({net, collectives, collectives.position(), collectives.size()});
      }
    }
    // A rank that has left must not keep the others waiting for its bell.
    if (stay) net.waiter().leave(), done.arrive_and_wait(), net.waiter().enter();
  });
}

}  // namespace hvd::test
