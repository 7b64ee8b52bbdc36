#include "transport/local.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <numeric>

#include "base/bell.h"
#include "transport/shared_memory.h"

namespace hvd {

Result<std::vector<HostGroup>> make_local_groups(int32_t size, int32_t first_rank, int32_t world_size) {
  auto memory = create_shared_memory(ControlBlock::bytes(size));
  if (!memory.ok()) return memory.status();
  std::vector<UniqueFd> bells;
  for (int32_t rank = 0; rank < size; rank++) {
    auto bell = create_bell();
    if (!bell.ok()) return bell.status();
    bells.push_back(std::move(*bell));
  }
  auto copy = [](const UniqueFd& fd) { return UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)); };
  std::vector<HostGroup> groups(static_cast<size_t>(size));
  for (int32_t rank = 0; rank < size; rank++) {
    HostGroup& group = groups[static_cast<size_t>(rank)];
    group.rank = rank;
    group.size = size;
    group.memory = copy(*memory);
    for (int32_t peer = 0; peer < size; peer++) {
      group.bells.push_back(copy(bells[static_cast<size_t>(peer)]));
      if (!group.bells.back()) return system_error("cannot copy a descriptor", "");
      group.world_ranks.push_back(first_rank + peer);
    }
    for (int32_t peer = 0; peer < std::max(world_size, size); peer++) {
      group.rank_names.push_back(fmt::format("rank {} (thread)", peer));
    }
  }
  return groups;
}

Result<std::vector<LocalRank>> make_local_hosts(std::span<const int32_t> ranks_per_host) {
  std::vector<LocalRank> ranks;
  std::vector<size_t> host_of;
  int32_t world_size = std::accumulate(ranks_per_host.begin(), ranks_per_host.end(), 0);
  for (size_t host = 0; host < ranks_per_host.size(); host++) {
    auto groups = make_local_groups(ranks_per_host[host], static_cast<int32_t>(ranks.size()), world_size);
    if (!groups.ok()) return groups.status();
    for (HostGroup& group : *groups) {
      ranks.push_back({.group = std::move(group), .streams = {}});
      host_of.push_back(host);
    }
  }
  for (size_t a = 0; a < ranks.size(); a++) {
    for (size_t b = a + 1; b < ranks.size(); b++) {
      if (host_of[a] == host_of[b]) continue;
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return system_error("cannot make a socket pair", "");
      ranks[a].streams.emplace_back(static_cast<int32_t>(b), make_plain_stream(UniqueFd(ends[0])));
      ranks[b].streams.emplace_back(static_cast<int32_t>(a), make_plain_stream(UniqueFd(ends[1])));
    }
  }
  return ranks;
}

}  // namespace hvd
