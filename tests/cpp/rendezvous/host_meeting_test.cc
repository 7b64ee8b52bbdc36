// The meeting of a host's ranks, with real processes.
#include "rendezvous/host_meeting.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <functional>
#include <set>
#include <thread>

#include "base/bell.h"
#include "rendezvous/host_greeting.h"
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

Result<HostMeeting> meet_with(const World& world, HostArrival own, Duration timeout, const Config& config = {}) {
  UniqueFd memory;
  if (world.local_rank == 0) {
    auto made = create_shared_memory(4096);
    EXPECT_TRUE(made.ok());
    memory = std::move(*made);
  }
  return meet_on_host(world, config, std::move(memory), std::move(own), Clock::now() + timeout);
}

Result<HostGroup> meet(const World& world, Duration timeout) {
  auto met = meet_with(world, {}, timeout);
  if (!met.ok()) return met.status();
  return std::move(met->group);
}

// Every test uses its own name.
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
    EXPECT_THAT(std::string(group.status().message()), HasSubstr("never connected: 2, 3"));
  });
}

TEST(HostMeeting, WithoutRankZeroTheOthersSaySo) {
  auto group = meet(world_of(1, 2, job_name()), 100ms);
  ASSERT_FALSE(group.ok());
  EXPECT_THAT(std::string(group.status().message()), HasSubstr("never reached rank 0"));
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
    auto met = meet_with(world, {.port = static_cast<uint16_t>(1000 + local)}, 20s);
    ASSERT_TRUE(met.ok()) << met.status().message();
    EXPECT_EQ(met->group.world_ranks, (std::vector<int32_t>{5, 3}));
    EXPECT_THAT(met->group.rank_names[3], HasSubstr("rank 3 (hostb, pid "));
    EXPECT_EQ(met->group.rank_names.size(), 7u);
    if (local == 0) {
      EXPECT_EQ(met->arrived[0].port, 1000);
      EXPECT_EQ(met->arrived[1].port, 1001);
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

TEST(HostMeeting, WhetherTheHostIsCrowdedIsTheSameForAll) {
  std::string job = job_name();
  // By rank: the second has less to choose from than the others, and the last two share one core.
  std::vector<CoreMask> enough{{0b1111}, {0b0010}, {0b1000}}, shared{{0b1111}, {0b0010}, {0b0010}};
  run_processes(3, [&](int32_t rank) {
    for (const auto& [masks, crowded] : {std::pair{enough, false}, std::pair{shared, true}}) {
      World world = world_of(rank, 3, job + (crowded ? "crowded" : ""));
      auto met = meet_with(world, {.cores = masks[static_cast<size_t>(rank)]}, 20s);
      ASSERT_TRUE(met.ok()) << met.status().message();
      EXPECT_EQ(met->crowded, crowded);
    }
  });
}

TEST(HostMeeting, KnobsThatDifferAreNamedOnEveryRank) {
  std::string job = job_name();
  run_processes(3, [&](int32_t rank) {
    std::vector<SharedKnob> knobs{{"HOROVOD_SAME", "7"}, {"HOROVOD_SHM_CHUNKS", rank == 1 ? "8" : "16"}};
    auto met = meet_with(world_of(rank, 3, job), {.knobs = knobs}, 20s);
    ASSERT_FALSE(met.ok());
    EXPECT_EQ(met.status().code(), Code::invalid_argument);  // a retry is useless
    EXPECT_THAT(std::string(met.status().message()),
                HasSubstr("but HOROVOD_SHM_CHUNKS is 16 on ranks 0, 2, 8 on rank 1; set the same value"));
  });
}

// ---- strangers ----

Config with_key(char digit) {
  Config config;
  config.secret_key = std::string(64, digit);
  return config;
}

HostGreeting greeting_of(const World& world, const Config& config) {
  return HostGreeting::create(world, config).value();
}

UniqueFd unix_socket() { return UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)); }

void listen_under(const UniqueFd& socket, const std::string& name) {
  socklen_t length = 0;
  sockaddr_un address = abstract_address(name, length);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(socket.get(), 8), 0);
}

// Connects as soon as there is a listener.
UniqueFd connect_under(const std::string& name) {
  socklen_t length = 0;
  sockaddr_un address = abstract_address(name, length);
  TimePoint end = Clock::now() + 60s;
  for (;;) {
    UniqueFd socket = unix_socket();
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) == 0) return socket;
    if (Clock::now() > end) return UniqueFd();
    ::sched_yield();
  }
}

TEST(HostGreeting, NamesTellNothingAndDifferForEveryMeeting) {
  World world = world_of(0, 2, "the job"), later = world, elsewhere = world;
  later.generation = Generation{1};
  elsewhere.host = "there";
  std::set<std::string> names{greeting_of(world, with_key('a')).name(0),
                              greeting_of(world, with_key('b')).name(0),
                              greeting_of(world, {}).name(0),
                              greeting_of(world, {}).name(1),
                              greeting_of(later, with_key('a')).name(0),
                              greeting_of(elsewhere, with_key('a')).name(0)};
  EXPECT_EQ(names.size(), 6u);
  for (const std::string& name : names) EXPECT_EQ(name.find("job"), std::string::npos);
  EXPECT_EQ(greeting_of(world, with_key('a')).name(0), greeting_of(world_of(1, 2, "the job"), with_key('a')).name(0));
}

TEST(HostGreeting, AProofIsGoodForOneConversationAndOneSide) {
  HostGreeting ours = greeting_of(world_of(0, 2, "job"), with_key('a'));
  HostGreeting other = greeting_of(world_of(0, 2, "job"), with_key('b'));
  HostOpening opening{.nonce = random_nonce().value()}, another{.nonce = random_nonce().value()};
  Nonce nonce = random_nonce().value();
  HostChallenge challenge = ours.challenge("name", opening, nonce);
  EXPECT_TRUE(ours.is_leader("name", opening, challenge));
  EXPECT_FALSE(ours.is_leader("name", another, challenge));
  EXPECT_FALSE(ours.is_leader("another name", opening, challenge));
  EXPECT_FALSE(other.is_leader("name", opening, challenge));
  Bytes said(10, std::byte{5}), hello = ours.sign("name", opening, nonce, said);
  EXPECT_EQ(ours.confirmed("name", opening, nonce, hello).size(), said.size());
  EXPECT_TRUE(ours.confirmed("name", another, nonce, hello).empty());
  EXPECT_TRUE(ours.confirmed("name", opening, another.nonce, hello).empty());
  EXPECT_TRUE(other.confirmed("name", opening, nonce, hello).empty());
  hello.back() = std::byte{6};
  EXPECT_TRUE(ours.confirmed("name", opening, nonce, hello).empty());
  // What the leader has proven proves nothing when it is sent back.
  Bytes reflected(challenge.proof.size() + said.size());
  std::copy(challenge.proof.begin(), challenge.proof.end(), reflected.begin());
  EXPECT_TRUE(ours.confirmed("name", opening, nonce, reflected).empty());
}

// The names are in /proc/net/unix once the leader listens, so a stranger of the same user can come.
TEST(HostMeeting, StrangersHoldNobodyUpAndAreNotLetIn) {
  std::string job = job_name(), go = "/tmp/" + job;
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  run_processes(4, [&](int32_t process) {
    World world = world_of(std::min(process, 2), 3, job);
    Config config = with_key('a');
    if (process == 3) {  // comes first
      std::string name = greeting_of(world, config).name(0);
      std::vector<UniqueFd> silent;
      for (int i = 0; i < 300; i++) silent.push_back(connect_under(name));
      UniqueFd garbage = connect_under(name), liar = connect_under(name);
      ASSERT_GT(::send(garbage.get(), "hello there", 11, MSG_NOSIGNAL), 0);
      HostOpening opening{.nonce = random_nonce().value()};
      ASSERT_TRUE(send_message(liar, std::as_bytes(std::span(&opening, 1)), {}));
      HostChallenge challenge;
      std::vector<UniqueFd> fds;
      ASSERT_TRUE(receive_message(liar, std::as_writable_bytes(std::span(&challenge, 1)), fds));
      Bytes hello = greeting_of(world, with_key('b')).sign(name, opening, challenge.nonce, Bytes(20));
      UniqueFd bell = std::move(*create_bell());
      int fd = bell.get();
      ASSERT_TRUE(send_message(liar, hello, {&fd, 1}));
      for (const UniqueFd* stranger : {&garbage, &liar}) {  // sent away, and given nothing
        EXPECT_TRUE(receive_up_to(*stranger, 4096, fds).empty());
        EXPECT_TRUE(fds.empty());
      }
      UniqueFd opened(::open(go.c_str(), O_WRONLY | O_CLOEXEC));
      (void)receive_up_to(silent.back(), 4096, fds);  // until the meeting is over
      return;
    }
    if (process > 0) UniqueFd opened(::open(go.c_str(), O_RDONLY | O_CLOEXEC));
    auto met = meet_with(world, {}, 60s, config);
    ASSERT_TRUE(met.ok()) << met.status().message();
  });
  ::unlink(go.c_str());
}

TEST(HostMeeting, AFalseLeaderIsGivenNothing) {
  World world = world_of(1, 2, job_name());
  UniqueFd listener = unix_socket();
  listen_under(listener, greeting_of(world, with_key('a')).name(0));
  std::jthread leader([&] {
    UniqueFd member(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    HostOpening opening;
    std::vector<UniqueFd> fds;
    EXPECT_TRUE(receive_message(member, std::as_writable_bytes(std::span(&opening, 1)), fds));
    std::string name = greeting_of(world, with_key('a')).name(0);
    HostChallenge challenge = greeting_of(world, with_key('b')).challenge(name, opening, random_nonce().value());
    EXPECT_TRUE(send_message(member, std::as_bytes(std::span(&challenge, 1)), {}));
    EXPECT_TRUE(receive_up_to(member, 4096, fds).empty());
    EXPECT_TRUE(fds.empty());
    listener = UniqueFd();
  });
  auto met = meet_with(world, {}, 2s, with_key('a'));
  ASSERT_FALSE(met.ok());
  EXPECT_THAT(std::string(met.status().message()), HasSubstr("never reached rank 0"));
}

TEST(HostMeeting, WithoutAKeyAnotherUserCannotPreventTheMeeting) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  std::string job = job_name();
  HostGreeting greeting = greeting_of(world_of(0, 2, job), {});
  std::vector<UniqueFd> taken(3);
  std::jthread([&] {  // a user id is that of a thread for the kernel
    ASSERT_EQ(::syscall(SYS_setresuid, 65534, 65534, 65534), 0);
    for (size_t i = 0; i < taken.size(); i++) {
      taken[i] = unix_socket();
      if (i < 2) listen_under(taken[i], greeting.name(i));
    }
    socklen_t length = 0;
    sockaddr_un address = abstract_address(greeting.name(2), length);  // and does not listen
    ASSERT_EQ(::bind(taken[2].get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  })
      .join();
  run_processes(2, [&](int32_t rank) {
    auto met = meet_with(world_of(rank, 2, job), {}, 60s);
    ASSERT_TRUE(met.ok()) << met.status().message();
  });
}

TEST(HostMeeting, ASecondLeaderOfTheSameJobIsRefused) {
  World world = world_of(0, 2, job_name());
  for (const Config& config : {Config{}, with_key('a')}) {
    UniqueFd first = unix_socket();
    listen_under(first, greeting_of(world, config).name(0));
    auto met = meet_with(world, {}, 20s, config);
    ASSERT_FALSE(met.ok());
    EXPECT_THAT(std::string(met.status().message()), HasSubstr("is another local rank 0 of the same job running?"));
  }
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
