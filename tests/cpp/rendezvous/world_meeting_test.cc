// Worlds of several hosts, with real processes on the loopback that pretend to be on different hosts.
#include "rendezvous/world_meeting.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/wait.h>

#include <filesystem>
#include <functional>
#include <numeric>

#include "model/host_tree.h"
#include "net/key.h"
#include "rendezvous/store_client.h"
#include "rendezvous/store_server.h"
#include "rendezvous/world.h"
#include "transport/shared_memory.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr double kTimeToCome = 5;  // seconds, for all that are there, in tests that wait for one that is not

// The placement of one process; tests change single values to wrong ones.
Config make_config(const std::vector<int32_t>& ranks_per_host, int32_t rank, uint16_t port, const std::string& key) {
  Config config;
  int32_t host = 0, local = rank;
  for (; local >= ranks_per_host[static_cast<size_t>(host)]; host++) local -= ranks_per_host[static_cast<size_t>(host)];
  config.rank = rank;
  for (int32_t count : ranks_per_host) config.size += count;
  config.size -= 1;  // of the default world
  config.local_rank = local;
  config.local_size = ranks_per_host[static_cast<size_t>(host)];
  config.cross_rank = host;
  config.cross_size = static_cast<int32_t>(ranks_per_host.size());
  config.hostname = fmt::format("host{}", static_cast<char>('a' + host));
  config.rendezvous_addr = "127.0.0.1";
  config.rendezvous_port = port;
  config.secret_key = key;
  config.network_interfaces = {"lo"};
  config.start_timeout = 120;
  config.silence_time = 60;  // a rank does not speak on its links while it exchanges bytes
  return config;
}

Result<WorldGroup> form(const Config& config) {
  auto world = world_from_config(config, Generation{3});
  if (!world.ok()) return world.status();
  UniqueFd memory;
  if (world->local_rank == 0) memory = std::move(create_shared_memory(4096).value());
  return form_world(*world, config, std::move(memory));
}

class WorldMeeting : public testing::Test {
 protected:
  WorldMeeting() : key_(Key::random().value().hex()) {
    auto listener = listen_on(std::vector{parse_ip("127.0.0.1").value()});
    port_ = listener->port;
    listener_ = std::move(*listener);
  }

  // Runs a process for each of the ranks; all must pass. They are forked before the store has its thread: a child
  // would inherit the locks of OpenSSL that the thread happens to hold.
  void run(const std::vector<int32_t>& ranks_per_host, const std::vector<int32_t>& ranks,
           const std::function<void(Config)>& body) {
    std::vector<pid_t> children;
    for (int32_t rank : ranks) {
      Config config = make_config(ranks_per_host, rank, port_, key_);
      pid_t child = ::fork();
      if (child == 0) {
        body(config);
        std::fflush(nullptr);
        std::_Exit(testing::Test::HasFailure() ? 1 : 0);
      }
      children.push_back(child);
    }
    std::unique_ptr<StoreServer> store;
    if (!listener_.sockets.empty()) {
      Credentials credentials{.key = Key::from_hex(key_).value(), .tls = nullptr};
      store = std::move(StoreServer::create(std::move(listener_), credentials).value());
    }
    for (size_t i = 0; i < children.size(); i++) {
      int status = 0;
      ::waitpid(children[i], &status, 0);
      EXPECT_EQ(status, 0) << "rank " << ranks[i];
    }
  }

  std::string key_;
  Listener listener_;  // of the store; empty where there is to be none
  uint16_t port_ = 0;
};

// One byte to and from every rank with which there is a connection, over all stripes.
void exchange(WorldGroup& group, int32_t rank) {
  for (auto& [peer, stripes] : group.streams) {
    for (auto& stream : stripes) {
      std::byte mine{static_cast<uint8_t>(rank)};
      ASSERT_EQ(stream->write({&mine, 1}).value(), 1u);
    }
  }
  for (auto& [peer, stripes] : group.streams) {
    for (auto& stream : stripes) {
      std::byte theirs{};
      size_t got = 0;
      while (got == 0) {
        pollfd wanted{.fd = stream->descriptor(), .events = POLLIN, .revents = 0};
        ASSERT_EQ(::poll(&wanted, 1, 60'000), 1);
        got = stream->read({&theirs, 1}).value();
      }
      EXPECT_EQ(theirs, std::byte{static_cast<uint8_t>(peer)});
    }
  }
}

std::string receive(ControlLink& link) {
  ByteView message;
  while (!link.receive(message)) {
    pollfd wanted{.fd = link.descriptor(), .events = POLLIN, .revents = 0};
    ::poll(&wanted, 1, 100);
    if (Status status = link.progress(Clock::now()); !status.ok()) return std::string(status.message());
  }
  return {reinterpret_cast<const char*>(message.data()), message.size()};
}

// Down the tree and up again.
void pass_messages(WorldGroup& group) {
  if (group.parent) {
    EXPECT_EQ(receive(*group.parent), "down");
  }
  for (auto& [host, link] : group.children) link->send(std::as_bytes(std::span("down", 4)));
  for (auto& [host, link] : group.children) EXPECT_EQ(receive(*link), "up");
  if (group.parent) group.parent->send(std::as_bytes(std::span("up", 2)));
}

struct Shape {
  std::vector<int32_t> ranks_per_host;
  int32_t streams = 1;
};
void PrintTo(const Shape& shape, std::ostream* out) {
  for (int32_t ranks : shape.ranks_per_host) *out << ranks << ' ';
  *out << "with " << shape.streams << " streams";
}
class Shapes : public WorldMeeting, public testing::WithParamInterface<Shape> {};

TEST_P(Shapes, EveryRankKnowsAllAndReachesItsPeers) {
  const Shape& shape = GetParam();
  int32_t size = std::accumulate(shape.ranks_per_host.begin(), shape.ranks_per_host.end(), 0);
  std::vector<int32_t> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  run(shape.ranks_per_host, ranks, [&](Config config) {
    config.tcp_streams = shape.streams;
    auto group = form(config);
    ASSERT_TRUE(group.ok()) << group.status().message();
    EXPECT_EQ(group->hosts.size(), shape.ranks_per_host.size());
    for (size_t host = 0, rank = 0; host < group->hosts.size(); host++) {
      ASSERT_EQ(group->hosts[host].ranks.size(), static_cast<size_t>(shape.ranks_per_host[host]));
      for (const HostRecord::Rank& record : group->hosts[host].ranks) {
        EXPECT_EQ(record.rank, static_cast<int32_t>(rank));
        EXPECT_EQ(group->host_of_rank[rank], static_cast<int32_t>(host));
        EXPECT_EQ(group->host.rank_names[rank], rank_name(group->hosts[host], rank - group->hosts[host].ranks[0].rank));
        rank++;
      }
    }
    EXPECT_EQ(group->streams.size(), usual_peers(group->hosts, config.rank).size());
    for (auto& [peer, stripes] : group->streams) EXPECT_EQ(stripes.size(), static_cast<size_t>(shape.streams));
    EXPECT_EQ(group->parent != nullptr, config.local_rank == 0 && config.cross_rank > 0);
    EXPECT_EQ(group->children.size(),
              config.local_rank == 0 ? place_of_host(config.cross_rank, config.cross_size).children.size() : 0u);
    exchange(*group, config.rank);
    pass_messages(*group);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Shapes,
                         testing::Values(Shape{{2, 2}}, Shape{{3, 1}}, Shape{{1, 1, 1}}, Shape{{1, 3}, 3},
                                         Shape{{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}));

TEST_F(WorldMeeting, AMissingHostIsNamedOnAllRanks) {
  run({2, 1, 1}, {0, 1, 2}, [](Config config) {
    config.start_timeout = kTimeToCome;
    auto group = form(config);
    ASSERT_FALSE(group.ok());
    EXPECT_THAT(std::string(group.status().message()),
                HasSubstr("of 4 ranks on 3 hosts, these never connected: 3; there were hosta, hostb"));
  });
}

TEST_F(WorldMeeting, AMissingRootIsNamedOnAllRanks) {
  run({1, 2}, {1, 2}, [](Config config) {
    config.start_timeout = kTimeToCome;
    auto group = form(config);
    ASSERT_FALSE(group.ok());
    EXPECT_THAT(std::string(group.status().message()), HasSubstr("these never connected: 0; there were hostb"));
  });
}

TEST_F(WorldMeeting, ARankMissingOnAnotherHostIsNamedOnAllRanks) {
  run({1, 3}, {0, 1, 2}, [](Config config) {
    config.start_timeout = config.rank == 0 ? 2 * kTimeToCome : kTimeToCome;
    auto group = form(config);
    ASSERT_FALSE(group.ok());
    EXPECT_THAT(std::string(group.status().message()),
                HasSubstr("of 3 ranks on hostb, these local ranks never connected: 2"));
  });
}

TEST_F(WorldMeeting, AnotherKeyIsRefused) {
  run({1, 1}, {0, 1}, [](Config config) {
    config.start_timeout = kTimeToCome;
    if (config.rank == 1) config.secret_key = std::string(64, 'a');
    auto group = form(config);
    ASSERT_FALSE(group.ok());
    EXPECT_THAT(std::string(group.status().message()),
                config.rank == 0 ? HasSubstr("these never connected: 1") : HasSubstr("cannot reach the rendezvous"));
    EXPECT_EQ(group.status().message().find(config.secret_key), std::string::npos);
  });
}

TEST_F(WorldMeeting, DisagreementAboutTheWorldIsNamedOnAllRanks) {
  run({2, 1}, {0, 1, 2}, [](Config config) {
    if (config.rank == 2) config.size = 4;
    auto group = form(config);
    ASSERT_FALSE(group.ok());
    EXPECT_THAT(std::string(group.status().message()), HasSubstr("hosta was started with 3 ranks on 2 hosts"));
  });
}

TEST_F(WorldMeeting, ARankThatIsThereTwiceIsNamedOnAllRanks) {
  run({2, 1}, {0, 1, 2}, [](Config config) {
    if (config.rank == 2) config.rank = 1;
    auto group = form(config);
    ASSERT_FALSE(group.ok());
    EXPECT_THAT(std::string(group.status().message()), HasSubstr("two processes say they are rank 1: one on hosta"));
  });
}

TEST_F(WorldMeeting, RankZeroHostsTheStoreIfNobodyElseDoes) {
  listener_ = {};
  run({1, 1}, {0, 1}, [](Config config) {
    auto group = form(config);
    ASSERT_TRUE(group.ok()) << group.status().message();
    EXPECT_EQ(group->store != nullptr, config.rank == 0);
  });
}

TEST_F(WorldMeeting, AHostWhoseRanksDisagreeIsNotWaitedFor) {
  for (int32_t refused : {0, 1}) {
    SCOPED_TRACE(refused);
    auto listener = listen_on(std::vector{parse_ip("127.0.0.1").value()});
    port_ = listener->port;
    listener_ = std::move(*listener);
    run({2, 2, 1}, {0, 1, 2, 3, 4}, [&](Config config) {
      config.start_timeout = 3600;  // would be waited for
      if (config.cross_rank == refused) config.shm_chunks += config.local_rank;
      auto group = form(config);
      ASSERT_FALSE(group.ok());
      EXPECT_THAT(std::string(group.status().message()), HasSubstr("HOROVOD_SHM_CHUNKS"));
    });
  }
}

TEST_F(WorldMeeting, LeavesNothingOfItselfAndOfThePastInTheStore) {
  run({1, 1}, {0, 1}, [](const Config& config) {
    auto endpoints = resolve(config.rendezvous_addr, static_cast<uint16_t>(config.rendezvous_port));
    Credentials credentials{.key = Key::from_hex(config.secret_key).value(), .tls = nullptr};
    TimePoint deadline = Clock::now() + 120s;
    auto store = std::move(StoreClient::connect(*endpoints, credentials, config.rank, deadline).value());
    if (config.rank == 0) {
      for (const char* key : {"world/1/host/0", "world/2/failure/1", "world/4/host/0", "other"})
        ASSERT_TRUE(store->set(key, {}, deadline).ok());
    }
    auto group = form(config);
    ASSERT_TRUE(group.ok()) << group.status().message();
    auto left = store->gather("", 0, deadline);
    ASSERT_TRUE(left.ok());
    std::vector<std::string> keys;
    for (const auto& [key, value] : *left) keys.push_back(key);
    EXPECT_THAT(keys, testing::ElementsAre("other", "world/4/host/0"));
  });
}

TEST_F(WorldMeeting, OneHostOpensNoSocketsAndNeedsNoStore) {
  listener_ = {};
  Config config = make_config({1}, 0, 1, "");
  auto count = [] {
    std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  auto before = count();
  {
    auto group = form(config);
    ASSERT_TRUE(group.ok()) << group.status().message();
    EXPECT_EQ(group->dialer, nullptr);
    EXPECT_EQ(count(), before + 2);  // memory and bell
  }
  EXPECT_EQ(count(), before);
}

TEST_F(WorldMeeting, NoDescriptorIsLeftBehind) {
  run({1, 1}, {0, 1}, [](Config config) {
    auto count = [] {
      std::filesystem::directory_iterator all("/proc/self/fd");
      return std::distance(begin(all), end(all));
    };
    auto before = count();
    {
      auto group = form(config);
      ASSERT_TRUE(group.ok()) << group.status().message();
    }
    EXPECT_EQ(count(), before);
  });
}

TEST(World, RankZeroMustLeadTheFirstHost) {
  Config config = make_config({2, 2}, 1, 1, "");
  config.local_rank = 0;
  auto world = world_from_config(config, Generation{0});
  ASSERT_FALSE(world.ok());
  EXPECT_THAT(std::string(world.status().message()), HasSubstr("only rank 0"));
}

TEST(UsualPeers, AreMutual) {
  std::vector<HostRecord> hosts;
  int32_t next = 0;
  for (int32_t count : {2, 3, 1, 2, 2}) {
    HostRecord& host = hosts.emplace_back();
    host.index = static_cast<int32_t>(hosts.size()) - 1;
    for (int32_t i = 0; i < count; i++) host.ranks.push_back({.rank = next++});
  }
  for (int32_t rank = 0; rank < next; rank++) {
    for (int32_t peer : usual_peers(hosts, rank)) EXPECT_THAT(usual_peers(hosts, peer), testing::Contains(rank));
  }
}

}  // namespace
}  // namespace hvd
