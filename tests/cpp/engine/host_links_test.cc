#include "engine/host_links.h"

#include <gmock/gmock.h>

#include "transport/local.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// A leader with one link down, whose other end is the test's.
struct Leader {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<ControlLink> below;
  std::unique_ptr<HostLinks> links;
};

Leader make_leader() {
  auto groups = make_local_groups(1, 0, 2);
  auto transport = Transport::create(std::move((*groups)[0]), {});
  auto connection = make_local_connection({});
  TimePoint now = Clock::now();
  auto end = [&](std::unique_ptr<Stream>& stream, const char* peer) {
    return std::make_unique<ControlLink>(std::move(stream), peer, ControlLinkSettings{}, now);
  };
  std::vector<HostLinks::Child> children;
  children.push_back({1, end(connection->first, "rank 1")});
  auto links = HostLinks::create(**transport, nullptr, std::move(children));
  return {std::move(*transport), end(connection->second, "rank 0"), std::move(*links)};
}

Status progress_until_the_goodbye(ControlLink& link) {
  while (!link.has_departed()) {
    if (Status status = link.progress(Clock::now()); !status.ok()) return status;
  }
  return {};
}

TEST(HostLinks, GoodbyeAloneIsNoFailure) {
  Leader leader = make_leader();
  leader.links->leave(Clock::now() + 10s);
  EXPECT_TRUE(progress_until_the_goodbye(*leader.below).ok());
  EXPECT_TRUE(leader.below->failure().ok());
}

// The others would wait for the lost rank until they give up connecting to it.
TEST(HostLinks, WhoFailsAndLeavesAtOnceStillTellsTheOthers) {
  Leader leader = make_leader();
  leader.transport->abort({Code::peer_lost, "rank 3 is gone", {.kind = OriginKind::lost, .rank = 3}});
  leader.links->leave(Clock::now() + 10s);
  EXPECT_TRUE(progress_until_the_goodbye(*leader.below).ok());
  EXPECT_EQ(leader.below->failure().code(), Code::peer_lost);
  EXPECT_THAT(leader.below->failure().message(), HasSubstr("rank 3 is gone"));
  EXPECT_EQ(leader.below->failure().origin().rank, 3);
}

}  // namespace
}  // namespace hvd
