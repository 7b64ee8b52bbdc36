// Ranks of one process that keep watch while no thread drives, in real time with a silence as short as it can be.
#include "engine/watch.h"

#include <gmock/gmock.h>

#include "transport/local.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr WatchSettings kShort{.heartbeat = 50ms, .silence = 400ms};

std::vector<std::unique_ptr<Transport>> make_transports(int32_t ranks) {
  auto groups = make_local_groups(ranks);
  std::vector<std::unique_ptr<Transport>> transports;
  for (HostGroup& group : *groups) transports.push_back(std::move(*Transport::create(std::move(group), {})));
  return transports;
}

// The failure of the world, or none within the time.
Status failure_within(Transport& transport, Duration time) {
  transport.waiter().enter();
  (void)transport.waiter().wait_until([&] { return transport.failed(); }, Clock::now() + time);
  transport.waiter().leave();
  return transport.failure();
}

TEST(Watch, ARankThatBeatsIsNotLostThoughNobodyDrivesThere) {
  auto transports = make_transports(2);
  Watch first(*transports[0], nullptr, kShort), second(*transports[1], nullptr, kShort);
  EXPECT_TRUE(failure_within(*transports[0], 3 * kShort.silence).ok());
}

TEST(Watch, ARankThatFallsSilentIsLostThoughNobodyDrivesHere) {
  auto transports = make_transports(2);
  Watch first(*transports[0], nullptr, kShort);
  transports[1]->heartbeats().beat();
  Status failure = failure_within(*transports[1], 60s);
  EXPECT_EQ(failure.code(), Code::peer_lost);
  EXPECT_THAT(failure.message(), HasSubstr("rank 1 (thread) is lost: silent for"));
}

// The others may learn much later that this rank has left, because they are busy.
TEST(Watch, ARankThatHasLeftIsNotSilent) {
  auto transports = make_transports(2);
  Watch first(*transports[0], nullptr, kShort), second(*transports[1], nullptr, kShort);
  second.stop();
  EXPECT_TRUE(failure_within(*transports[0], 3 * kShort.silence).ok());
}

TEST(Watch, ALossWaitsForItsCause) {
  auto transports = make_transports(1);
  Watch watch(*transports[0], nullptr, kShort);
  watch.report_loss({Code::peer_lost, "rank 7 is gone: the effect"});
  transports[0]->abort({Code::peer_lost, "rank 3 is gone: the cause"});
  EXPECT_THAT(failure_within(*transports[0], 60s).message(), HasSubstr("the cause"));
}

TEST(Watch, ALossWithoutAnotherCauseEndsTheWorld) {
  auto transports = make_transports(1);
  Watch watch(*transports[0], nullptr, kShort);
  watch.report_loss({Code::peer_lost, "rank 7 is gone"});
  watch.report_loss({Code::peer_lost, "rank 8 is gone"});
  EXPECT_EQ(failure_within(*transports[0], 60s).message(), "rank 7 is gone");
}

// A leader, with no thread that drives, and the far end of its one link.
TEST(Watch, LinksAreKeptGoingThoughNobodyDrives) {
  auto transports = make_transports(1);
  auto connection = make_local_connection({});
  ControlLinkSettings limits{.heartbeat = kShort.heartbeat, .silence = kShort.silence};
  ControlLink far(std::move(connection->second), "rank 0", limits, Clock::now());
  std::vector<HostLinks::Child> children;
  children.push_back({1, std::make_unique<ControlLink>(std::move(connection->first), "rank 1", limits, Clock::now())});
  auto links = HostLinks::create(*transports[0], nullptr, std::move(children));
  ASSERT_TRUE(links.ok());
  Watch watch(*transports[0], links->get(), kShort);
  // It and the leader exchange messages for much longer than the silence limit.
  TimePoint end = Clock::now() + 3 * kShort.silence;
  transports[0]->waiter().enter();
  while (Clock::now() < end) {
    ASSERT_TRUE(far.progress(Clock::now()).ok());
    ASSERT_TRUE(transports[0]->waiter().wait_until([] { return false; }, std::min(end, far.next_beat())).ok());
  }
  // A message that the watch has read wakes the driver, which sleeps.
  far.send({});
  EXPECT_TRUE(transports[0]->waiter().wait_until([&] { return (*links)->has_messages(); }, kNever).ok());
  // And the silence of the far end is noticed.
  Status lost = transports[0]->waiter().wait_until([] { return false; }, kNever);
  EXPECT_THAT(lost.message(), HasSubstr("rank 1 is lost: silent for"));
  transports[0]->waiter().leave();
}

}  // namespace
}  // namespace hvd
