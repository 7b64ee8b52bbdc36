// Streams between ranks of different hosts: the same suite over pairs of Unix sockets, loopback TCP, and several
// connections per pair.
#include "transport/mesh.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <csignal>
#include <cstring>
#include <latch>
#include <numeric>
#include <random>
#include <thread>

#include "net/dialer.h"
#include "support/ranks.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;
using test::HostsOptions;
using test::Where;
using testing::HasSubstr;

constexpr int32_t kTwoHosts[] = {1, 1};

struct Kind {
  const char* name;
  LocalLink link;
  MeshSettings mesh = {};
};

class MeshTest : public testing::TestWithParam<Kind> {
 protected:
  std::vector<int> run(std::span<const int32_t> hosts, const std::function<void(Transport&, int32_t)>& body,
                       Where where = Where::threads, TransportSettings settings = test::small_settings()) {
    HostsOptions options;
    options.settings = settings;
    options.link = GetParam().link;
    options.mesh = GetParam().mesh;
    options.where = where;
    return test::run_hosts(hosts, options, body);
  }
};

std::byte byte_at(size_t position, int32_t rank) {
  return static_cast<std::byte>((position * 31 + static_cast<size_t>(rank) * 7) >> 3);
}
Bytes bytes_of(size_t size, int32_t rank) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; i++) bytes[i] = byte_at(i, rank);
  return bytes;
}

TEST_P(MeshTest, BytesOfAPairArriveInOrderWhateverTheSizes) {
  run(kTwoHosts, [](Transport& transport, int32_t rank) {
    Mesh& mesh = *transport.mesh();
    int32_t peer = 1 - rank;
    std::mt19937 random(7);
    std::vector<size_t> sizes;
    for (int i = 0; i < 50; i++) sizes.push_back(random() % (i % 10 == 0 ? 300'000 : 500));
    size_t total = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
    Bytes out = bytes_of(total, rank), in(total);
    Mesh::Ticket sent, received;
    size_t at = 0;
    for (size_t size : sizes) {
      sent = mesh.send(peer, ByteView(out).subspan(at, size));
      at += size;
    }
    at = 0;
    std::reverse(sizes.begin(), sizes.end());  // the sizes of sends and receives need not match
    for (size_t size : sizes) {
      received = mesh.receive(peer, std::span(in).subspan(at, size));
      at += size;
    }
    ASSERT_TRUE(transport.waiter().wait(sent, "test").ok());
    ASSERT_TRUE(transport.waiter().wait(received, "test").ok());
    EXPECT_EQ(in, bytes_of(total, peer));
    EXPECT_FALSE(mesh.is_busy());
  });
}

// Both send more than the connections hold before they receive anything: neither may wait for the other to read first.
TEST_P(MeshTest, FullBuffersInBothDirectionsDoNotDeadlock) {
  std::latch full(2);
  run(kTwoHosts, [&](Transport& transport, int32_t rank) {
    constexpr size_t kBytes = 48 << 20;
    Mesh& mesh = *transport.mesh();
    Bytes out = bytes_of(kBytes, rank), in(kBytes);
    Mesh::Ticket sent = mesh.send(1 - rank, out);
    for (int i = 0; i < 20; i++) mesh.progress();
    EXPECT_FALSE(mesh.is_done(sent));
    full.arrive_and_wait();
    Mesh::Ticket received = mesh.receive(1 - rank, in);
    ASSERT_TRUE(transport.waiter().wait(sent, "test").ok());
    ASSERT_TRUE(transport.waiter().wait(received, "test").ok());
    EXPECT_TRUE(in == bytes_of(kBytes, 1 - rank));
  });
}

TEST_P(MeshTest, ManyPeersAtOnce) {
  constexpr int32_t kHosts[] = {2, 1, 1, 1};
  run(kHosts, [](Transport& transport, int32_t rank) {
    constexpr size_t kBytes = 1 << 20;
    Mesh& mesh = *transport.mesh();
    Bytes out = bytes_of(kBytes, rank);
    std::vector<Bytes> in(5, Bytes(kBytes));
    for (int round = 0; round < 3; round++) {
      std::vector<Mesh::Ticket> tickets;
      for (int32_t peer = 0; peer < 5; peer++) {
        if (!mesh.has(peer)) continue;
        tickets.push_back(mesh.send(peer, out));
        tickets.push_back(mesh.receive(peer, in[static_cast<size_t>(peer)]));
      }
      for (const Mesh::Ticket& ticket : tickets) ASSERT_TRUE(transport.waiter().wait(ticket, "test").ok());
      for (int32_t peer = 0; peer < 5; peer++) {
        EXPECT_TRUE(!mesh.has(peer) || in[static_cast<size_t>(peer)] == bytes_of(kBytes, peer));
      }
    }
  });
}

TEST_P(MeshTest, ASleepingRankIsWokenByBytes) {
  TransportSettings settings = test::small_settings();
  settings.yield = {};  // sleep at once
  auto body = [](Transport& transport, int32_t rank) {
    Mesh& mesh = *transport.mesh();
    for (int32_t round = 0; round < 200; round++) {
      int32_t out = round, in = -1;
      auto send = [&] { mesh.send(1 - rank, std::as_bytes(std::span(&out, 1))); };
      if (rank == 0) send();
      ASSERT_TRUE(
          transport.waiter().wait(mesh.receive(1 - rank, std::as_writable_bytes(std::span(&in, 1))), "test").ok());
      EXPECT_EQ(in, round);
      if (rank == 1) send();
    }
  };
  run(kTwoHosts, body, Where::threads, settings);
}

bool is_readable(int descriptor) {
  pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&wanted, 1, 0) == 1;
}

TEST_P(MeshTest, BytesThatNobodyAskedForYetWakeNobody) {
  run(kTwoHosts, [](Transport& transport, int32_t rank) {
    Mesh& mesh = *transport.mesh();
    std::byte first{1}, second{2};
    if (rank == 1) {
      mesh.send(0, {&first, 1});
      mesh.send(0, {&second, 1});
      ASSERT_TRUE(transport.waiter().wait(mesh.receive(0, {&first, 1}), "test").ok());
    } else {
      ASSERT_TRUE(transport.waiter().wait(mesh.receive(1, {&first, 1}), "test").ok());
      EXPECT_FALSE(is_readable(mesh.descriptor()));  // the second byte is there or will be
      mesh.receive(1, {&second, 1});
      EXPECT_FALSE(is_readable(mesh.descriptor()));  // requested, but no thread sleeps
      ASSERT_TRUE(transport.waiter().wait_until([&] { return !mesh.is_busy(); }, kNever).ok());
      EXPECT_EQ(second, std::byte{2});
      mesh.send(1, {&first, 1});
    }
  });
}

TEST_P(MeshTest, WaitFailsWhenThePeerEnds) {
  run(kTwoHosts, [](Transport& transport, int32_t rank) {
    if (rank == 1) return;
    std::byte byte{};
    Mesh::Ticket ticket = transport.mesh()->receive(1, {&byte, 1});
    Status status = transport.waiter().wait(ticket, "test");
    EXPECT_EQ(status.code(), Code::peer_lost);
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
  });
}

TEST_P(MeshTest, WhatAPeerSentBeforeItLeftStillArrives) {
  run(kTwoHosts, [](Transport& transport, int32_t rank) {
    constexpr size_t kBytes = 100'000;  // fits the sockets
    Mesh& mesh = *transport.mesh();
    if (rank == 1) {
      Bytes out = bytes_of(kBytes, 1);
      ASSERT_TRUE(transport.waiter().wait(mesh.send(0, out), "test").ok());
      return;
    }
    // The peer's end, which is not a failure yet, wakes once.
    while (!is_readable(mesh.descriptor())) std::this_thread::yield();
    for (size_t stripe = 0; stripe < GetParam().link.stripes; stripe++) {
      while (!is_readable(mesh.descriptor())) std::this_thread::yield();
      transport.waiter().answer_bell();
      if (!is_readable(mesh.descriptor())) break;
    }
    EXPECT_FALSE(transport.failed());
    Bytes in(kBytes);
    ASSERT_TRUE(transport.waiter().wait(mesh.receive(1, in), "test").ok());
    EXPECT_TRUE(in == bytes_of(kBytes, 1));
    EXPECT_FALSE(transport.failed());
  });
}

TEST_P(MeshTest, AKilledPeerFailsAWait) {
  auto exits = run(
      kTwoHosts,
      [](Transport& transport, int32_t rank) {
        Bytes data(1 << 20);
        Mesh& mesh = *transport.mesh();
        if (rank == 1) {
          ASSERT_TRUE(transport.waiter().wait(mesh.send(0, ByteView(data).first(1000)), "test").ok());
          std::raise(SIGKILL);
        }
        mesh.send(1, data);
        Status status = transport.waiter().wait(mesh.receive(1, data), "test");
        EXPECT_EQ(status.code(), Code::peer_lost);
        EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
      },
      Where::processes);
  EXPECT_EQ(exits, std::vector<int>{SIGKILL});
}

LocalLink under_tls(size_t stripes) {
  return {.tcp = true, .stripes = stripes, .tls = TlsContext::create(make_tls_identity().value()).value()};
}

const Kind kKinds[] = {{"tls", under_tls(1)},
                       {"tls_striped", under_tls(2), {.stripes = {50'000, 200'000}}},
                       {"unix", {}},
                       {"tcp", {.tcp = true}},
                       {"tcp_striped", {.tcp = true, .stripes = 3}, {.stripes = {10'000, 40'000}, .all_stripes = true}},
                       {"unix_striped", {.stripes = 4}, {.stripes = {4099, 3 * 4099}}}};
INSTANTIATE_TEST_SUITE_P(Links, MeshTest, testing::ValuesIn(kKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

// Unix sockets end alike whether their process died or left, so this is about TCP.
class IdleMeshTest : public testing::TestWithParam<Where> {};

TEST_P(IdleMeshTest, TheDeathOfAnIdlePeerIsNoticed) {
  HostsOptions options;
  options.link.tcp = true;
  options.where = GetParam();
  auto exits = test::run_hosts(kTwoHosts, options, [](Transport& transport, int32_t rank) {
    if (rank == 1) {
      if (GetParam() == Where::processes) std::raise(SIGKILL);
      // What the kernel does for a process that dies: a close without goodbye.
      std::vector<int> fds;
      transport.mesh()->list_descriptors(fds);
      ::dup2(fds.front(), fds.back());
      return;
    }
    transport.waiter().leave();
    while (!transport.failed()) {
      transport.waiter().sleep(kNever);
      transport.waiter().answer_bell_for_driver();
    }
    EXPECT_EQ(transport.failure().code(), Code::peer_lost);
    EXPECT_THAT(std::string(transport.failure().message()), HasSubstr("rank 1"));
    transport.waiter().enter();
  });
  EXPECT_EQ(exits, GetParam() == Where::processes ? std::vector<int>{SIGKILL} : std::vector<int>{});
}

INSTANTIATE_TEST_SUITE_P(Where, IdleMeshTest, testing::Values(Where::threads, Where::processes),
                         [](const auto& where) { return test::name_of(where.param); });

// ---- opened on demand ----

struct Door {
  std::unique_ptr<Acceptor> acceptor;
  HostRecord record;
};

Door make_door(const Credentials& credentials, int32_t rank) {
  auto listener = listen_on(std::vector{parse_ip("127.0.0.1").value()});
  EXPECT_TRUE(listener.ok());
  Welcome welcome{.purposes = {Purpose::data}, .rank = rank};
  Door door{.acceptor = std::move(Acceptor::create(std::move(*listener), credentials, welcome).value()), .record = {}};
  door.record = {.index = rank,
                 .name = "host" + std::to_string(rank),
                 .addresses = door.acceptor->endpoints(),
                 .ranks = {{.rank = rank, .pid = 100 + rank, .port = door.acceptor->port()}}};
  return door;
}

// Runs body on one thread per rank; each has a mesh without connections, and a dialer.
void run_dialers(
    int32_t ranks, DialerSettings settings, const std::function<void(Transport&, int32_t)>& body,
    const std::function<void(std::vector<HostRecord>&)>& spoil = [](auto&) {}) {
  Credentials credentials{.key = Key::random().value(), .tls = nullptr};
  std::vector<Door> doors;
  std::vector<HostRecord> hosts;
  for (int32_t rank = 0; rank < ranks; rank++) {
    doors.push_back(make_door(credentials, rank));
    hosts.push_back(doors.back().record);
  }
  spoil(hosts);
  std::vector<std::jthread> threads;
  for (int32_t rank = 0; rank < ranks; rank++) {
    threads.emplace_back([&, rank, settings]() mutable {
      auto groups = make_local_groups(1, rank, ranks);
      auto transport = Transport::create(std::move((*groups)[0]), test::small_settings());
      ASSERT_TRUE(transport.ok());
      Transport& net = **transport;
      settings.rank = rank;
      auto dialer =
          Dialer::create(std::move(doors[static_cast<size_t>(rank)].acceptor), {}, hosts, credentials, settings);
      ASSERT_TRUE(dialer.ok()) << dialer.status().message();
      auto mesh = Mesh::create([&](int32_t, const Status& status) { net.abort(status); });
      (*mesh)->set_dialer(std::move(*dialer));
      ASSERT_TRUE(net.attach(std::move(*mesh)).ok());
      net.waiter().enter();
      body(net, rank);
      net.peers().say_goodbye();
      net.waiter().leave();
    });
  }
}

TEST(OnDemand, WhoIsFirstUsedIsConnectedFirst) {
  run_dialers(3, {.streams = 2}, [](Transport& transport, int32_t rank) {
    Mesh& mesh = *transport.mesh();
    constexpr size_t kBytes = 1 << 20;
    for (int32_t step = 1; step < 3; step++) {  // rank 0 first talks to 1 and 2, then to 2 and 1
      int32_t to = (rank + step) % 3, from = (rank + 3 - step) % 3;
      Bytes out = bytes_of(kBytes, rank), in(kBytes);
      Mesh::Ticket sent = mesh.send(to, out), received = mesh.receive(from, in);
      ASSERT_TRUE(transport.waiter().wait(sent, "test").ok());
      ASSERT_TRUE(transport.waiter().wait(received, "test").ok());
      EXPECT_TRUE(in == bytes_of(kBytes, from));
    }
  });
}

TEST(OnDemand, WhoCannotBeReachedIsAnErrorWithEveryAddress) {
  run_dialers(
      2, {.timeout = 3s},
      [](Transport& transport, int32_t rank) {
        std::byte byte{};
        Status status = transport.waiter().wait(transport.mesh()->receive(1 - rank, {&byte, 1}), "test");
        std::string text(status.message());
        if (rank == 0) {
          EXPECT_THAT(text, HasSubstr("rank 1 (host1, pid 101)"));
          EXPECT_THAT(text, HasSubstr("127.0.0.1:1"));
          EXPECT_THAT(text, HasSubstr("connection refused"));
        } else {
          EXPECT_THAT(text, HasSubstr("rank 0 (host0, pid 100) did not connect to rank 1 (host1, pid 101)"));
        }
      },
      [](std::vector<HostRecord>& hosts) { hosts[1].ranks[0].port = 1; });
}

}  // namespace
}  // namespace hvd
