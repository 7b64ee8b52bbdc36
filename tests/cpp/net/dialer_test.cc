// Connections that are opened while a world runs. Time is passed in, so that an hour takes no time here.
#include "net/dialer.h"

#include <gmock/gmock.h>

#include "net/connections.h"
#include "net/greeting.h"

namespace hvd {
namespace {

using namespace test;
using testing::HasSubstr;

struct Pair {
  Credentials credentials = make_credentials(false);
  std::unique_ptr<Dialer> lower, higher;  // of ranks 0 and 1; the lower one calls

  Pair() {
    std::vector<std::unique_ptr<Acceptor>> doors;
    std::vector<HostRecord> hosts;
    for (int32_t rank : {0, 1}) {
      doors.push_back(make_acceptor(credentials, rank));
      HostRecord& host = hosts.emplace_back();
      host.index = rank;
      host.name = "host" + std::to_string(rank);
      host.addresses = doors.back()->endpoints();
      host.ranks.push_back({.rank = rank, .pid = 100 + rank, .port = doors.back()->port(), .cores = {}});
    }
    lower = dial(std::move(doors[0]), hosts, 0);
    higher = dial(std::move(doors[1]), hosts, 1);
  }

  std::unique_ptr<Dialer> dial(std::unique_ptr<Acceptor> door, const std::vector<HostRecord>& hosts, int32_t rank) {
    DialerSettings settings{.rank = rank, .streams = 2, .timeout = 5s, .options = {}};
    return std::move(Dialer::create(std::move(door), {}, hosts, credentials, settings).value());
  }
};

TEST(Dialer, WhileTheWorldFormsBothSidesGiveUp) {
  Pair pair;
  TimePoint now = Clock::now();
  pair.lower->open(1, now);
  pair.higher->open(0, now);
  auto caller = pair.lower->poll(now + 1h);
  while (!caller) caller = pair.lower->poll(now + 1h);
  EXPECT_THAT(std::string(caller->stripes.status().message()), HasSubstr("cannot connect to rank 1 (host1, pid 101)"));
  auto called = pair.higher->poll(now + 1h);
  ASSERT_TRUE(called);
  EXPECT_THAT(std::string(called->stripes.status().message()), HasSubstr("rank 0 (host0, pid 100) did not connect"));
}

TEST(Dialer, InARunningWorldAPeerThatIsStoppedIsWaitedFor) {
  Pair pair;
  pair.lower->be_patient(30min);
  pair.higher->be_patient(30min);
  TimePoint now = Clock::now();
  pair.lower->open(1, now);
  pair.higher->open(0, now);
  for (Duration passed = 0s; passed <= 1h; passed += 1min) {  // one looks and the other does not
    EXPECT_FALSE(pair.lower->poll(now + passed));
  }
  EXPECT_FALSE(pair.higher->poll(now + 1h));
  // It runs again, an hour later.
  std::optional<Dialer::Opened> caller, called;
  TimePoint end = Clock::now() + kLong;
  while ((!caller || !called) && Clock::now() < end) {
    if (!caller) caller = pair.lower->poll(Clock::now() + 1h);
    if (!called) called = pair.higher->poll(Clock::now() + 1h);
  }
  ASSERT_TRUE(caller && caller->stripes.ok() && called && called->stripes.ok());
  // They are the same connections: what goes in at one end comes out at the other.
  for (size_t stripe = 0; stripe < 2; stripe++) {
    Stream &from = *(*caller->stripes)[stripe], &to = *(*called->stripes)[stripe];
    std::byte sent{static_cast<uint8_t>(7 + stripe)}, arrived{};
    ASSERT_EQ(from.write({&sent, 1}).value(), 1u);
    ASSERT_TRUE(wait_any({to.descriptor()}));
    ASSERT_EQ(to.read({&arrived, 1}).value(), 1u);
    EXPECT_EQ(arrived, sent);
  }
}

// The called side lets it in with the proof. A caller that calls again then would leave it with a dead connection.
TEST(Connector, AnAttemptThatHasItsProofIsNotGivenUpForBeingSlow) {
  Credentials credentials = make_credentials(false);
  auto listener = listen_on(std::vector{ip("127.0.0.1")});
  ASSERT_TRUE(listener.ok());
  TimePoint now = Clock::now();
  Target target{.name = "rank 1", .endpoints = listener->endpoints, .identity = identity_of(0, 1)};
  auto connector = std::move(Connector::create(target, credentials, now, kNever).value());
  EXPECT_FALSE(connector->poll(now));
  ASSERT_TRUE(wait_any({listener->sockets[0].get()}));
  UniqueFd socket(::accept4(listener->sockets[0].get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  auto called = std::move(make_stream(std::move(socket), credentials, false).value());
  Handshake handshake = Handshake::called(credentials.key, welcome_of(1), random_nonce().value());
  for (int message = 0; message < 2; message++) {  // hello, and the proof after the challenge
    pollfd wanted{.fd = called->descriptor(), .events = POLLIN, .revents = 0};
    TimePoint end = Clock::now() + kLong;
    while (::poll(&wanted, 1, 1) == 0 && Clock::now() < end) EXPECT_FALSE(connector->poll(now));
    if (message == 0) {
      ASSERT_TRUE(carry(handshake, *called).ok());
    }
  }
  EXPECT_FALSE(connector->poll(now + 1h));
  ASSERT_TRUE(carry(handshake, *called).ok());
  EXPECT_EQ(handshake.state(), Handshake::State::done);
  ASSERT_TRUE(wait_any({connector->descriptor()}));
  auto stream = connector->poll(now + 1h);
  ASSERT_TRUE(stream && stream->ok());
  std::byte sent{9}, arrived{};
  ASSERT_EQ((**stream)->write({&sent, 1}).value(), 1u);
  ASSERT_TRUE(wait_any({called->descriptor()}));
  ASSERT_EQ(called->read({&arrived, 1}).value(), 1u);
  EXPECT_EQ(arrived, sent);
}

}  // namespace
}  // namespace hvd
