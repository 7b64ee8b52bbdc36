#include "transport/local.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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

namespace {

Result<std::pair<UniqueFd, UniqueFd>> connect_sockets(bool tcp) {
  if (!tcp) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
      return system_error("cannot make a socket pair", "");
    return std::pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
  }
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  UniqueFd caller(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  if (::bind(listener.get(), any, length) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), any, &length) != 0 || ::connect(caller.get(), any, length) != 0) {
    return system_error("cannot connect over the loopback", "");
  }
  UniqueFd called(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!called) return system_error("cannot accept a connection", "");
  for (const UniqueFd* end : {&caller, &called}) {
    int on = 1;
    ::setsockopt(end->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::fcntl(end->get(), F_SETFL, O_NONBLOCK);
  }
  return std::pair(std::move(caller), std::move(called));
}

// One byte in each direction completes the TLS handshake on both sides.
Status greet(Stream& caller, Stream& called) {
  for (auto [from, to] : {std::pair(&caller, &called), std::pair(&called, &caller)}) {
    std::byte byte{};
    for (bool sent = false, came = false; !came;) {
      if (!sent) {
        auto count = from->write({&byte, 1});
        if (!count.ok()) return count.status();
        sent = *count > 0;
      }
      auto count = to->read({&byte, 1});
      if (!count.ok()) return count.status();
      came = *count > 0;
    }
  }
  return {};
}

}  // namespace

Result<std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>>> make_local_connection(const LocalLink& link) {
  auto sockets = connect_sockets(link.tcp);
  if (!sockets.ok()) return sockets.status();
  if (link.tls == nullptr) {
    return std::pair(make_plain_stream(std::move(sockets->first)), make_plain_stream(std::move(sockets->second)));
  }
  auto caller = link.tls->make_stream(std::move(sockets->first), true);
  if (!caller.ok()) return caller.status();
  auto called = link.tls->make_stream(std::move(sockets->second), false);
  if (!called.ok()) return called.status();
  if (Status status = greet(**caller, **called); !status.ok()) return status;
  return std::pair(std::move(*caller), std::move(*called));
}

Result<std::vector<LocalRank>> make_local_hosts(std::span<const int32_t> ranks_per_host, const LocalLink& link) {
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
      auto& from_a = ranks[a].streams.emplace_back(static_cast<int32_t>(b), 0).second;
      auto& from_b = ranks[b].streams.emplace_back(static_cast<int32_t>(a), 0).second;
      for (size_t stripe = 0; stripe < link.stripes; stripe++) {
        auto ends = make_local_connection(link);
        if (!ends.ok()) return ends.status();
        from_a.push_back(std::move(ends->first));
        from_b.push_back(std::move(ends->second));
      }
    }
  }
  return ranks;
}

}  // namespace hvd
