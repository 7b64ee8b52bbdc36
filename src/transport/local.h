// Worlds whose ranks are threads of one process, for tests. Thread rule: any.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/host_group.h"
#include "net/stream.h"
#include "net/tls.h"

namespace hvd {

// `first_rank` and `world_size`: the host's position in a world of several hosts.
Result<std::vector<HostGroup>> make_local_groups(int32_t size, int32_t first_rank = 0, int32_t world_size = -1);

// How two ranks of different hosts are connected.
struct LocalLink {
  bool tcp = false;  // loopback instead of a pair of Unix sockets
  size_t stripes = 1;
  std::shared_ptr<const TlsContext> tls = nullptr;
};

// The same for several simulated hosts: ranks_per_host[h] ranks on host h, in the order of ranks, and streams between
// every two ranks of different hosts.
struct LocalRank {
  HostGroup group;
  std::vector<std::pair<int32_t, std::vector<std::unique_ptr<Stream>>>> streams;  // by rank of the world
};
Result<std::vector<LocalRank>> make_local_hosts(std::span<const int32_t> ranks_per_host, const LocalLink& link = {});

// Two ends of one connection.
Result<std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>>> make_local_connection(const LocalLink& link);

}  // namespace hvd
