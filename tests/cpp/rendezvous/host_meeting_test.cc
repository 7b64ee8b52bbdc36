// The meeting of a host's ranks, with real processes.
#include "rendezvous/host_meeting.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <functional>

#include "rendezvous/parcel.h"
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
  if (world.local_rank == 0) {
    auto made = create_shared_memory(4096);
    EXPECT_TRUE(made.ok());
    memory = std::move(*made);
  }
  auto met = meet_on_host(world, std::move(memory), 0, Clock::now() + timeout);
  if (!met.ok()) return met.status();
  return std::move(met->group);
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
    auto group = meet(world_of(rank, 4, job), 3s);  // the other one comes in this time
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
    if (i == 0) {
      EXPECT_THAT(std::string(group.status().message()), HasSubstr("two processes say they are rank 1"));
    }
  });
}

TEST(HostMeeting, DifferentWorldSizesAreRefused) {
  std::string job = job_name();
  run_processes(2, [&](int32_t rank) {
    auto group = meet(world_of(rank, rank == 0 ? 2 : 3, job), 20s);
    ASSERT_FALSE(group.ok());
    if (rank == 0) {
      EXPECT_THAT(std::string(group.status().message()), HasSubstr("says it is rank 1 of 3"));
    }
  });
}

TEST(HostMeeting, AWorldOfOneNeedsNobody) {
  auto group = meet(world_of(0, 1, job_name()), 1s);
  ASSERT_TRUE(group.ok());
}

TEST(HostMeeting, AHostOfALargerWorldKnowsItsRanksAndPorts) {
  std::string job = job_name();
  run_processes(2, [&](int32_t local) {
    World world{.rank = 5 - 2 * local, .size = 7, .local_rank = local, .local_size = 2, .host = "hostb", .job = job};
    UniqueFd memory;
    if (local == 0) memory = std::move(create_shared_memory(4096).value());
    auto met = meet_on_host(world, std::move(memory), static_cast<uint16_t>(1000 + local), Clock::now() + 20s);
    ASSERT_TRUE(met.ok()) << met.status().message();
    EXPECT_EQ(met->group.world_ranks, (std::vector<int32_t>{5, 3}));
    EXPECT_THAT(met->group.rank_names[3], HasSubstr("rank 3 (hostb, pid "));
    EXPECT_EQ(met->group.rank_names.size(), 7u);
    if (local == 0) {
      EXPECT_EQ(met->ports, (std::vector<uint16_t>{1000, 1001}));
      EXPECT_EQ(met->pids[0], ::getpid());
    }
  });
}

TEST(HostMeeting, WrongPlacesOnAHostAreNamed) {
  std::string job = job_name();
  run_processes(2, [&](int32_t local) {
    World world{.rank = local, .size = 4, .local_rank = local, .local_size = 2 + local, .host = "hostb", .job = job};
    auto group = meet(world, 20s);
    ASSERT_FALSE(group.ok());
    EXPECT_THAT(std::string(group.status().message()), HasSubstr("says it is local rank 1 of 3"));
  });
}

TEST(Parcel, CarriesAnyLengthAndTellsWhenItsSenderIsGone) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  UniqueFd a(ends[0]), b(ends[1]);
  for (size_t size : {size_t{0}, size_t{1}, size_t{5'000'000}}) {
    Bytes bytes(size, std::byte{7});
    ASSERT_TRUE(send_parcel(a, bytes).ok());
    auto got = receive_parcel(b, Clock::now() + 20s);
    ASSERT_TRUE(got.ok());
    EXPECT_TRUE(*got == bytes);
  }
  EXPECT_EQ(receive_parcel(b, Clock::now()).status().code(), Code::timed_out);
  a = UniqueFd();
  EXPECT_EQ(receive_parcel(b, Clock::now() + 20s).status().code(), Code::peer_lost);
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
