// The meeting of a host's ranks, with real processes.
#include "rendezvous/host_meeting.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <functional>

#include "rendezvous/world.h"
#include "transport/shared_memory.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

World world_of(int32_t rank, int32_t size, const std::string& job) {
  return {.rank = rank, .size = size, .local_rank = rank, .local_size = size, .host = "here", .job = job};
}

Result<HostGroup> meet(const World& world, Duration timeout) {
  UniqueFd memory;
  if (world.rank == 0) {
    auto made = create_shared_memory(4096);
    EXPECT_TRUE(made.ok());
    memory = std::move(*made);
  }
  return meet_on_host(world, std::move(memory), timeout);
}

// Every test meets under a name of its own.
std::string job_name() {
  return std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + std::to_string(::getpid());
}

void run_processes(int32_t count, const std::function<void(int32_t)>& body) {
  std::vector<pid_t> children;
  for (int32_t i = 0; i < count; i++) {
    pid_t child = ::fork();
    if (child == 0) {
      body(i);
      std::fflush(nullptr);
      std::_Exit(testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

TEST(HostMeeting, EveryoneGetsTheMemoryAndTheBells) {
  std::string job = job_name();
  run_processes(5, [&](int32_t rank) {
    auto group = meet(world_of(rank, 5, job), 20s);
    ASSERT_TRUE(group.ok()) << group.status().message();
    EXPECT_EQ(group->bells.size(), 5u);
    EXPECT_TRUE(group->memory);
    EXPECT_EQ(group->sockets.size(), rank == 0 ? 5u : 1u);
    EXPECT_THAT(group->rank_names[4], HasSubstr("rank 4 (here, pid "));
  });
}

TEST(HostMeeting, WhoNeverCameIsNamedOnAllThatDid) {
  std::string job = job_name();
  run_processes(2, [&](int32_t rank) {
    auto group = meet(world_of(rank, 4, job), 300ms);
    ASSERT_FALSE(group.ok());
    EXPECT_THAT(std::string(group.status().message()), HasSubstr("never came: 2, 3"));
  });
}

TEST(HostMeeting, WithoutRankZeroTheOthersSaySo) {
  auto group = meet(world_of(1, 2, job_name()), 100ms);
  ASSERT_FALSE(group.ok());
  EXPECT_THAT(std::string(group.status().message()), HasSubstr("never met rank 0"));
}

TEST(HostMeeting, TwoProcessesWithOneRankAreRefused) {
  std::string job = job_name();
  run_processes(3, [&](int32_t i) {
    auto group = meet(world_of(i == 0 ? 0 : 1, 3, job), 20s);
    ASSERT_FALSE(group.ok());
    if (i == 0) EXPECT_THAT(std::string(group.status().message()), HasSubstr("two processes say they are rank 1"));
  });
}

TEST(HostMeeting, DifferentWorldSizesAreRefused) {
  std::string job = job_name();
  run_processes(2, [&](int32_t rank) {
    auto group = meet(world_of(rank, rank == 0 ? 2 : 3, job), 20s);
    ASSERT_FALSE(group.ok());
    if (rank == 0) EXPECT_THAT(std::string(group.status().message()), HasSubstr("says it is rank 1 of 3"));
  });
}

TEST(HostMeeting, AWorldOfOneNeedsNobody) {
  auto group = meet(world_of(0, 1, job_name()), 1s);
  ASSERT_TRUE(group.ok());
}

TEST(World, SeveralRanksNeedARendezvousAddress) {
  Config config;
  config.size = 2;
  auto world = world_from_config(config, Generation{0});
  ASSERT_FALSE(world.ok());
  EXPECT_THAT(std::string(world.status().message()), HasSubstr("HOROVOD_GLOO_RENDEZVOUS_ADDR"));
}

}  // namespace
}  // namespace hvd
