// Runs several ranks of one host for a test, as threads of this process or as real processes.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <functional>
#include <memory>
#include <numeric>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "collectives/host_collectives.h"
#include "transport/local.h"
#include "transport/transport.h"

namespace hvd::test {

enum class Where { threads, processes };

inline void PrintTo(Where where, std::ostream* out) { *out << (where == Where::threads ? "threads" : "processes"); }
inline std::string name_of(Where where) { return where == Where::threads ? "threads" : "processes"; }

// Sockets between rank 0 and the others, as the meeting of a host's ranks leaves them.
inline void connect_groups(std::vector<HostGroup>& groups) {
  groups[0].sockets.resize(groups.size());
  for (size_t rank = 1; rank < groups.size(); rank++) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    groups[0].sockets[rank] = UniqueFd(pair[0]);
    groups[rank].sockets.emplace_back(pair[1]);
  }
}

// Runs body on children, one per item, that own nothing but their item; returns the wait statuses that are not 0.
template <class Item>
std::vector<int> run_children(std::vector<Item> items, const std::function<void(Item)>& body) {
  std::vector<pid_t> children;
  for (size_t i = 0; i < items.size(); i++) {
    pid_t child = ::fork();
    EXPECT_GE(child, 0);
    if (child == 0) {
      Item mine = std::move(items[i]);
      items.clear();  // the others' sockets must end with their owners
      body(std::move(mine));
      std::fflush(nullptr);
      std::_Exit(testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  items.clear();
  std::vector<int> bad;
  for (size_t i = 0; i < children.size(); i++) {
    int status = 0;
    ::waitpid(children[i], &status, 0);
    if (status != 0) bad.push_back(status);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) ADD_FAILURE() << "rank " << i << " failed";
  }
  return bad;
}

// Runs body(group) on every rank and waits for all. A failed expectation of any rank fails the test. With processes,
// returns the wait statuses of those that did not exit with 0, by rank.
inline std::vector<int> run_groups(int32_t ranks, Where where, const std::function<void(HostGroup)>& body) {
  auto made = make_local_groups(ranks);
  EXPECT_TRUE(made.ok()) << made.status().message();
  std::vector<HostGroup> groups = std::move(*made);
  connect_groups(groups);
  if (where == Where::threads) {
    std::vector<std::jthread> threads;
    for (HostGroup& group : groups) threads.emplace_back([&body, &group] { body(std::move(group)); });
    return {};
  }
  return run_children<HostGroup>(std::move(groups), body);
}

struct RankContext {
  Transport& transport;
  Collectives& collectives;
  int32_t rank;  // position in the process set
  int32_t size;
};

inline TransportSettings small_settings() {
  TransportSettings settings;
  settings.channel = {.ring = 16 << 10, .chunk = 1 << 10, .chunks = 4, .headers = 16};
  settings.spin = {};
  return settings;
}

// Runs body with a transport and the collectives of the whole group.
inline std::vector<int> run_ranks(int32_t ranks, Where where, const TransportSettings& settings, size_t one_shot_limit,
                                  const std::function<void(RankContext)>& body) {
  return run_groups(ranks, where, [&](HostGroup group) {
    auto transport = Transport::create(std::move(group), settings);
    ASSERT_TRUE(transport.ok()) << transport.status().message();
    std::vector<int32_t> all(static_cast<size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    auto channel = (*transport)->channels().open(0, all);
    ASSERT_TRUE(channel.ok()) << channel.status().message();
    (*transport)->waiter().enter();
    HostCollectives collectives(**channel, one_shot_limit);
    body({**transport, collectives, (*transport)->rank(), ranks});
    (*transport)->peers().say_goodbye();
    (*transport)->waiter().leave();
  });
}

// The sockets inside each host; the ranks come host by host.
inline void connect_hosts(std::vector<LocalRank>& ranks) {
  for (size_t first = 0; first < ranks.size();) {
    size_t size = static_cast<size_t>(ranks[first].group.size);
    std::vector<HostGroup> groups;
    for (size_t i = first; i < first + size; i++) groups.push_back(std::move(ranks[i].group));
    connect_groups(groups);
    for (size_t i = 0; i < size; i++) ranks[first + i].group = std::move(groups[i]);
    first += size;
  }
}

struct HostsOptions {
  TransportSettings settings = small_settings();
  LocalLink link = {};
  MeshSettings mesh = {};
  Where where = Where::threads;
  bool goodbye = true;  // a rank whose body returns leaves in order; else it looks as if it died
};

// Runs body(transport, rank of the world) on threads or processes that play the ranks of several hosts. With
// processes, returns the wait statuses that are not 0.
inline std::vector<int> run_hosts(std::span<const int32_t> ranks_per_host, const HostsOptions& options,
                                  const std::function<void(Transport&, int32_t)>& body) {
  auto made = make_local_hosts(ranks_per_host, options.link);
  EXPECT_TRUE(made.ok()) << made.status().message();
  if (!made.ok()) return {};
  connect_hosts(*made);
  auto run_one = [&](LocalRank mine) {
    auto transport = Transport::create(std::move(mine.group), options.settings);
    ASSERT_TRUE(transport.ok()) << transport.status().message();
    Transport& net = **transport;
    auto mesh = Mesh::create(
        [&net](int32_t peer, const Status& status) {
          net.abort({Code::peer_lost, net.rank_name(peer) + ": " + std::string(status.message())});
        },
        options.mesh);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    for (auto& [peer, streams] : mine.streams) (*mesh)->add(peer, std::move(streams));
    ASSERT_TRUE(net.attach(std::move(*mesh)).ok());
    net.waiter().enter();
    body(net, net.world_rank(net.rank()));
    if (options.goodbye) net.peers().say_goodbye();
    net.waiter().leave();
  };
  if (options.where == Where::processes) return run_children<LocalRank>(std::move(*made), run_one);
  std::vector<std::jthread> threads;
  for (LocalRank& mine : *made) threads.emplace_back([&] { run_one(std::move(mine)); });
  return {};
}
inline void run_hosts(std::span<const int32_t> ranks_per_host, const TransportSettings& settings,
                      const std::function<void(Transport&, int32_t)>& body) {
  HostsOptions options;
  options.settings = settings;
  run_hosts(ranks_per_host, options, body);
}

}  // namespace hvd::test
