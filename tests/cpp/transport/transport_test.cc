// The conformance suite of transports: the same tests over ranks that are threads and ranks that are processes.
#include "transport/transport.h"

#include <gmock/gmock.h>

#include <csignal>
#include <cstring>
#include <random>

#include "base/bell.h"
#include "support/ranks.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;
using test::Where;

class TransportTest : public testing::TestWithParam<Where> {
 protected:
  void run(int32_t ranks, const std::function<void(Transport&)>& body,
           TransportSettings settings = test::small_settings()) {
    exits_ = test::run_groups(ranks, GetParam(), [&](HostGroup group) {
      auto transport = Transport::create(std::move(group), settings);
      ASSERT_TRUE(transport.ok()) << transport.status().message();
      (*transport)->waiter().enter();
      body(**transport);
      (*transport)->peers().say_goodbye();
      (*transport)->waiter().leave();
    });
  }
  std::vector<int> exits_;
};

Bytes bytes_of(const std::string& text) {
  auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}
std::string text_of(ByteView view) { return {reinterpret_cast<const char*>(view.data()), view.size()}; }

std::string receive_up(Transport& transport, int32_t from) {
  ByteView message;
  bool got = false;
  EXPECT_TRUE(transport.waiter()
                  .wait_until([&] { return (got = transport.messages().receive_up(from, message)); }, kNever)
                  .ok());
  return text_of(message);
}
std::string receive_down(Transport& transport) {
  ByteView message;
  bool got = false;
  EXPECT_TRUE(
      transport.waiter().wait_until([&] { return (got = transport.messages().receive_down(message)); }, kNever).ok());
  return text_of(message);
}

TEST_P(TransportTest, ChoresAreDoneInWaitsThatNeverSleep) {
  TransportSettings awake = test::small_settings();
  awake.spin = 1h;
  run(
      1,
      [](Transport& transport) {
        int calls = 0;
        transport.waiter().set_chores([&](TimePoint now) {
          calls++;
          return now + 1ms;
        });
        EXPECT_TRUE(transport.waiter().wait_until([&] { return calls == 5; }, kNever).ok());
      },
      awake);
}

TEST_P(TransportTest, MessagesGoUpAndDownInOrder) {
  run(3, [](Transport& transport) {
    for (int round = 0; round < 200; round++) {
      std::string text = "round " + std::to_string(round);
      if (transport.is_root()) {
        for (int32_t peer = 1; peer < 3; peer++) EXPECT_EQ(receive_up(transport, peer), text);
        transport.messages().send(bytes_of(text));
      } else {
        transport.messages().send(bytes_of(text));
        EXPECT_EQ(receive_down(transport), text);
      }
    }
  });
}

TEST_P(TransportTest, MessagesOfAnyLengthAreTakenWhole) {
  run(2, [](Transport& transport) {
    for (size_t length = 0; length < 4 * kLineBytes; length++) {
      std::string text(length, static_cast<char>('a' + length % 26));
      if (transport.is_root()) {
        EXPECT_EQ(receive_up(transport, 1), text);
        transport.messages().send(bytes_of(text));
      } else {
        transport.messages().send(bytes_of(text));
        EXPECT_EQ(receive_down(transport), text);
      }
    }
  });
}

TEST_P(TransportTest, MessagesLongerThanTheRingPassThroughIt) {
  run(3, [](Transport& transport) {
    std::string up(3 * kUpLines * kLineBytes + 17, 'u'), down(2 * kDownLines * kLineBytes + 5, 'd');
    auto flushed = [&] { return transport.messages().flush(); };
    if (transport.is_root()) {
      for (int32_t peer = 1; peer < 3; peer++) EXPECT_EQ(receive_up(transport, peer), up);
      transport.messages().send(bytes_of(down));
      EXPECT_TRUE(transport.waiter().wait_until(flushed, kNever).ok());
    } else {
      transport.messages().send(bytes_of(up));
      EXPECT_TRUE(transport.waiter().wait_until(flushed, kNever).ok());
      EXPECT_EQ(receive_down(transport), down);
    }
  });
}

TEST_P(TransportTest, ManyMessagesQueueWhenTheReaderIsSlow) {
  run(2, [](Transport& transport) {
    constexpr int kMessages = 20000;
    if (transport.is_root()) {
      for (int i = 0; i < kMessages; i++) EXPECT_EQ(receive_up(transport, 1), std::to_string(i));
    } else {
      for (int i = 0; i < kMessages; i++) transport.messages().send(bytes_of(std::to_string(i)));
      EXPECT_TRUE(transport.waiter().wait_until([&] { return transport.messages().flush(); }, kNever).ok());
    }
  });
}

TEST_P(TransportTest, AWaitEndsAtItsTime) {
  run(1, [](Transport& transport) {
    TimePoint until = Clock::now() + 20ms;
    EXPECT_TRUE(transport.waiter().wait_until([] { return false; }, until).ok());
    EXPECT_GE(Clock::now(), until);
  });
}

TEST_P(TransportTest, ASleepingRankIsWokenByAMessage) {
  TransportSettings settings = test::small_settings();
  settings.yield = {};  // sleep at once
  run(
      4,
      [](Transport& transport) {
        for (int round = 0; round < 50; round++) {
          if (transport.is_root()) {
            for (int32_t peer = 1; peer < 4; peer++) EXPECT_EQ(receive_up(transport, peer), "a");
            transport.messages().send(bytes_of("b"));
          } else {
            transport.messages().send(bytes_of("a"));
            EXPECT_EQ(receive_down(transport), "b");
          }
        }
      },
      settings);
}

TEST_P(TransportTest, AbortEndsEveryWaitWithTheFirstReason) {
  const std::string reason = "tried" + std::string(3000, '.');  // as long as a list of addresses with their results
  run(3, [&](Transport& transport) {
    if (transport.rank() == 1) transport.abort({Code::unknown, reason});
    Status status = transport.waiter().wait_until([] { return false; }, kNever);
    EXPECT_EQ(status.code(), Code::unknown);
    EXPECT_EQ(status.message(), reason);
    transport.abort({Code::unknown, "a later one"});
    EXPECT_EQ(transport.failure().message(), reason);
    EXPECT_EQ(transport.failure().origin(), (Origin{.kind = OriginKind::internal, .rank = 1}));
  });
}

TEST_P(TransportTest, ChannelsOfDifferentSetsDoNotDisturbEachOther) {
  run(4, [](Transport& transport) {
    std::vector<std::vector<int32_t>> sets{{0, 1, 2, 3}, {0, 2}, {1, 3}, {1, 2, 3}};
    for (int32_t id = 0; id < 4; id++) {
      auto opened = transport.channels().open(id, sets[static_cast<size_t>(id)]);
      ASSERT_TRUE(opened.ok()) << opened.status().message();
      bool member =
          std::count(sets[static_cast<size_t>(id)].begin(), sets[static_cast<size_t>(id)].end(), transport.rank()) > 0;
      EXPECT_EQ(*opened != nullptr, member);
    }
    for (int round = 0; round < 30; round++) {
      for (int32_t id : {1, 2, 0, 3}) {
        Channel* channel = transport.channels().find(id);
        EXPECT_TRUE(channel == nullptr || channel->barrier().ok());
      }
    }
    // Memory of a closed set is used again and must not remember anything.
    ASSERT_TRUE(transport.channels().find(0)->barrier().ok());
    for (int32_t id : {1, 2, 3}) transport.channels().close(id);
    ASSERT_TRUE(transport.channels().find(0)->barrier().ok());
    auto again = transport.channels().open(1, {0, 3});
    ASSERT_TRUE(again.ok());
    for (int round = 0; *again != nullptr && round < 30; round++) EXPECT_TRUE((*again)->barrier().ok());
    ASSERT_TRUE(transport.channels().find(0)->barrier().ok());
  });
}

TEST_P(TransportTest, AStepBringsEveryonesBytesToEveryone) {
  run(3, [](Transport& transport) {
    auto opened = transport.channels().open(0, {0, 1, 2});
    ASSERT_TRUE(opened.ok());
    Channel& channel = **opened;
    std::mt19937 random(7);  // the same sizes on every rank
    for (int round = 0; round < 500; round++) {
      size_t bytes = random() % channel.largest_slot() + 1;
      channel.begin_step(bytes);
      std::memset(channel.slot(), round + transport.rank(), bytes);
      channel.post();
      for (int32_t p = 0; p < 3; p++) {
        ASSERT_TRUE(channel.await(p).ok());
        EXPECT_EQ(static_cast<uint8_t>(channel.slot_of(p)[0]), static_cast<uint8_t>(round + p));
        EXPECT_EQ(static_cast<uint8_t>(channel.slot_of(p)[bytes - 1]), static_cast<uint8_t>(round + p));
      }
    }
  });
}

TEST_P(TransportTest, ACollectiveThatTakesTooLongFailsTheWorld) {
  TransportSettings settings = test::small_settings();
  settings.collective_timeout = 50ms;
  run(
      2,
      [](Transport& transport) {
        auto opened = transport.channels().open(0, {0, 1});
        ASSERT_TRUE(opened.ok());
        if (transport.rank() == 1) {
          EXPECT_EQ(transport.waiter().wait_until([] { return false; }, kNever).code(), Code::unknown);
          return;
        }
        (*opened)->describe("allreduce.a");
        Status status = (*opened)->barrier();
        EXPECT_EQ(status.code(), Code::unknown);
        EXPECT_THAT(std::string(status.message()), testing::HasSubstr("rank 1"));
        EXPECT_THAT(std::string(status.message()), testing::HasSubstr("allreduce.a"));
      },
      settings);
}

INSTANTIATE_TEST_SUITE_P(Everywhere, TransportTest, testing::Values(Where::threads, Where::processes),
                         [](const auto& where) { return test::name_of(where.param); });

// ---- only with processes ----

class KilledRank : public testing::TestWithParam<int32_t> {};

TEST_P(KilledRank, EndsTheWaitsOfAllOthersNamingIt) {
  int32_t victim = GetParam();
  auto exits = test::run_groups(3, Where::processes, [&](HostGroup group) {
    auto transport = Transport::create(std::move(group), test::small_settings());
    ASSERT_TRUE(transport.ok());
    (*transport)->waiter().enter();
    auto channel = (*transport)->channels().open(0, {0, 1, 2});
    ASSERT_TRUE(channel.ok());
    ASSERT_TRUE((*channel)->barrier().ok());
    if ((*transport)->rank() == victim) ::raise(SIGKILL);
    Status status = (*channel)->barrier();
    EXPECT_EQ(status.code(), Code::peer_lost);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("rank " + std::to_string(victim)));
  });
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_TRUE(WIFSIGNALED(exits[0]));
}

INSTANTIATE_TEST_SUITE_P(AnyRank, KilledRank, testing::Values(0, 1, 2));

TEST(Transport, ADepartureWithGoodbyeIsNoFailure) {
  test::run_groups(2, Where::processes, [&](HostGroup group) {
    auto transport = Transport::create(std::move(group), test::small_settings());
    ASSERT_TRUE(transport.ok());
    (*transport)->waiter().enter();
    if ((*transport)->rank() == 1) {
      (*transport)->peers().say_goodbye();
      return;
    }
    // The end of rank 1's socket wakes this wait; it must continue until its time.
    EXPECT_TRUE((*transport)->waiter().wait_until([] { return false; }, Clock::now() + 200ms).ok());
    EXPECT_TRUE((*transport)->failure().ok());
  });
}

// ---- for worlds of several hosts ----

TEST(Transport, ARankThatDoesNotBeatIsSilent) {
  auto groups = make_local_groups(2);
  ASSERT_TRUE(groups.ok());
  auto root = Transport::create(std::move((*groups)[0]), test::small_settings());
  auto member = Transport::create(std::move((*groups)[1]), test::small_settings());
  ASSERT_TRUE(root.ok() && member.ok());
  TimePoint start(1000s);
  for (int second = 0; second < 10; second++) {
    (*member)->heartbeats().beat();
    EXPECT_TRUE((*root)->heartbeats().find_silent(start + second * 1s, 5s).ok()) << second;
  }
  EXPECT_TRUE((*root)->heartbeats().find_silent(start + 11s, 5s).ok());
  EXPECT_TRUE((*root)->heartbeats().find_silent(start + 13s, 5s).ok());
  Status status = (*root)->heartbeats().find_silent(start + 14s, 5s);
  EXPECT_EQ(status.code(), Code::peer_lost);
  EXPECT_EQ(status.message(), "rank 1 (thread) is lost: silent for 5.0 s");
  EXPECT_EQ(status.origin(), (Origin{.kind = OriginKind::silent, .rank = 1}));
}

TEST(Transport, SilenceWhileTheRootWasStoppedIsIgnored) {
  auto groups = make_local_groups(2);
  ASSERT_TRUE(groups.ok());
  auto root = Transport::create(std::move((*groups)[0]), test::small_settings());
  ASSERT_TRUE(root.ok());
  TimePoint start(1000s);
  EXPECT_TRUE((*root)->heartbeats().find_silent(start, 5s).ok());
  EXPECT_TRUE((*root)->heartbeats().find_silent(start + 60s, 5s).ok());
  EXPECT_TRUE((*root)->heartbeats().find_silent(start + 62s, 5s).ok());
  EXPECT_TRUE((*root)->heartbeats().find_silent(start + 64s, 5s).ok());
  EXPECT_FALSE((*root)->heartbeats().find_silent(start + 66s, 5s).ok());
}

// A rank alone that watches a bell as an event from outside.
class OutsideEvent : public testing::Test {
 protected:
  OutsideEvent() {
    auto groups = make_local_groups(1);
    transport = std::move(Transport::create(std::move((*groups)[0]), test::small_settings()).value());
    bell = std::move(create_bell().value());
    EXPECT_TRUE(transport->waiter().watch(bell.get()).ok());
  }

  bool wakes_within(Duration time) {
    TimePoint until = Clock::now() + time;
    transport->waiter().sleep(until);
    return Clock::now() < until;
  }

  std::unique_ptr<Transport> transport;
  UniqueFd bell;
};

TEST_F(OutsideEvent, WakesOnceUntilItIsRearmed) {
  ring(bell);
  EXPECT_TRUE(wakes_within(60s));
  EXPECT_FALSE(wakes_within(20ms));  // another thread drives: it must not keep us awake
  transport->waiter().leave();
  EXPECT_TRUE(wakes_within(60s));
  silence(bell);
  transport->waiter().leave();
  EXPECT_FALSE(wakes_within(20ms));
  transport->waiter().unwatch(bell.get());
  ring(bell);
  transport->waiter().leave();
  EXPECT_FALSE(wakes_within(20ms));
}

TEST_F(OutsideEvent, IsLeftToADriverThatComesAndGoesButNotLost) {
  transport->waiter().enter();
  ring(bell);
  EXPECT_FALSE(wakes_within(20ms));  // the driver will read it
  transport->waiter().leave(true);   // it did not, and does not come back
  EXPECT_TRUE(wakes_within(60s));
  transport->waiter().enter();
  transport->waiter().leave(true);
  EXPECT_TRUE(wakes_within(60s));  // also when it only paused from the beginning
  silence(bell);
  transport->waiter().enter();
  transport->waiter().leave(true);
  EXPECT_FALSE(wakes_within(20ms));
  ring(bell);
  EXPECT_TRUE(wakes_within(60s));  // no thread has been here for long
}

TEST_F(OutsideEvent, AnAlarmWakesOnceAndCanBeSetAgainOnceItWasAnswered) {
  for (int round = 0; round < 3; round++) {
    transport->waiter().wake_later(1ms);
    transport->waiter().wake_later(1h);  // one that is set stays
    EXPECT_TRUE(wakes_within(60s));
    EXPECT_FALSE(wakes_within(20ms));
    transport->waiter().answer_bell();
  }
}

TEST(Transport, ChoresAreDoneWhileADriverSleepsInAWait) {
  auto groups = make_local_groups(1);
  ASSERT_TRUE(groups.ok());
  TransportSettings settings = test::small_settings();
  settings.yield = {};
  auto made = Transport::create(std::move((*groups)[0]), settings);
  ASSERT_TRUE(made.ok());
  int done = 0;
  (*made)->waiter().set_chores([&](TimePoint now) {
    done++;
    return now + 1ms;
  });
  (*made)->waiter().enter();
  EXPECT_TRUE((*made)->waiter().wait_until([&] { return done == 5; }, kNever).ok());
  (*made)->waiter().leave();
}

}  // namespace
}  // namespace hvd
