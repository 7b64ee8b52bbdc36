// The driver of a static job: when it ends, and with which exit code.
#include <random>
#include <set>

#include "elastic/job.h"

namespace hvd::elastic {
namespace {

Settings of_ranks(int np) { return {.is_static = true, .np = np}; }

// Ranks 0 and 1 on a, rank 2 on b.
Job three_ranks() {
  Job job(of_ranks(3));
  EXPECT_EQ(job.hosts("a:2 b"), "generation 1: 0@a 1@a 2@b, start 0 a/0, start 1 a/1, start 2 b/0");
  return job;
}

std::string reports(Job& job, uint64_t id, int awaited) {
  return job.on(WorkerReported{.id = WorkerId{id}, .awaited = awaited});
}
std::string stops(Job& job) { return job.on(StopJob{"got SIGINT", 130}); }
std::string loses(Job& job, const std::string& host) { return job.on(HostLost{host, "cut off"}); }
std::string not_started(Job& job, uint64_t id) { return job.on(StartFailed{WorkerId{id}, "no such file"}); }

TEST(Static, KnowsTheWorldBeforeItStartsIt) {
  Job job = three_ranks();
  const Place& last = job.last.places.at(2);
  EXPECT_EQ(last, (Place{.id = WorkerId{2}, .host = "b", .rank = 2, .size = 3, .cross_rank = 1, .cross_size = 2}));
  EXPECT_EQ(job.driver.next_timer(), kNever) << "it may start and run as long as it likes";
  EXPECT_EQ(job.driver.resets(), 0);
}

TEST(Static, UsesAsManySlotsAsRanks) {
  Job job(of_ranks(3));
  EXPECT_EQ(job.hosts("a:2 b:2 c"), "generation 1: 0@a 1@a 2@b, start 0 a/0, start 1 a/1, start 2 b/0");
}

TEST(Static, EndsWhenAllHaveReturned0) {
  Job job = three_ranks();
  EXPECT_EQ(job.exits(1), "");
  EXPECT_EQ(job.exits(0), "");
  EXPECT_EQ(job.pass(10000), "") << "one may take much longer than the others";
  EXPECT_EQ(job.exits(2), "finish 0");
  EXPECT_TRUE(job.driver.finished());
}

TEST(Static, TheFirstFailureStopsAllAtOnce) {
  Job job = three_ranks();
  EXPECT_THAT(job.exits(1, 3), testing::MatchesRegex("fail: worker 1 .* ended with exit code 3, stop all"));
  EXPECT_EQ(job.exits(0, 1), "");
  EXPECT_EQ(job.exits(2), "finish 1");
}

TEST(Static, OneThatIsKilledHasFailed) { EXPECT_THAT(three_ranks().killed(2), testing::EndsWith("stop all")); }

TEST(Static, FailsAlsoWhenTheLastOneDoes) {
  Job job = three_ranks();
  job.exits(0);
  job.exits(1);
  EXPECT_THAT(job.exits(2, 1), testing::EndsWith("stop all, finish 1"));
}

TEST(Static, WaitsForTheEndOfTheRankThatOthersHaveLost) {
  Job job = three_ranks();
  EXPECT_EQ(reports(job, 0, 1), "");
  EXPECT_EQ(job.exits(0, 1), "") << "rank 1 is about to end";
  EXPECT_EQ(reports(job, 1, 1), "");
  EXPECT_EQ(job.pass(4.9), "");
  EXPECT_THAT(job.exits(1, 7), testing::EndsWith("stop all"));
  EXPECT_EQ(job.exits(2, 1), "finish 1");
}

TEST(Static, ACauseThatDoesNotEndIsStopped) {
  Job job = three_ranks();
  reports(job, 0, 1);
  job.exits(0, 1);
  EXPECT_EQ(job.pass(4.9), "");
  EXPECT_THAT(job.pass(0.2), testing::EndsWith("stop all"));
}

TEST(Static, TheTimeOfTheCauseBeginsWithTheFirstFailure) {
  Job job(of_ranks(4));
  job.hosts("a:4");
  reports(job, 0, 1);
  job.pass(60);
  EXPECT_EQ(job.exits(0, 1), "");
  job.pass(4);
  EXPECT_EQ(job.exits(2, 1), "") << "a second failure does not prolong it";
  EXPECT_THAT(job.pass(1), testing::EndsWith("stop all"));
}

TEST(Static, ACauseThatHasEndedIsNotAwaited) {
  Job job = three_ranks();
  job.exits(1);
  EXPECT_EQ(reports(job, 0, 1), "");
  EXPECT_THAT(job.exits(0, 1), testing::EndsWith("stop all"));
}

TEST(Static, AReportNamesNoRankOrANonsensicalOne) {
  for (int awaited : {-1, 3, 1 << 30}) {
    Job job = three_ranks();
    EXPECT_EQ(reports(job, 0, awaited), "");
    EXPECT_THAT(job.exits(0, 1), testing::EndsWith("stop all")) << awaited;
  }
}

TEST(Static, AReportAloneEndsNothing) {
  Job job = three_ranks();
  EXPECT_EQ(reports(job, 1, 1), "");
  EXPECT_EQ(job.pass(100), "");
  EXPECT_EQ(job.exits(1), "") << "it was caught: rank 1 has returned 0";
}

TEST(Static, ARankThatCannotBeStartedStopsTheOthers) {
  Job job = three_ranks();
  EXPECT_THAT(not_started(job, 1), testing::EndsWith("could not be started: no such file, stop all"));
  EXPECT_EQ(not_started(job, 2), "");
  EXPECT_EQ(job.killed(0), "finish 1");
}

TEST(Static, ALostHostStopsTheOthers) {
  Job job = three_ranks();
  EXPECT_EQ(loses(job, "a"), "fail: host a is lost: cut off, stop all");
  EXPECT_EQ(job.killed(2), "finish 1");
}

TEST(Static, AHostWhoseRanksAreDoneMustNotBeLostEither) {
  Job job = three_ranks();
  job.exits(2);
  EXPECT_EQ(loses(job, "b"), "fail: host b is lost: cut off, stop all");
}

TEST(Static, AHostThatStopsItsWorkersByItselfEndsTheJobWhateverTheyReturn) {
  Job job = three_ranks();
  EXPECT_THAT(job.on(WorkerExited{.id = WorkerId{2}, .was_stopped = true}), testing::EndsWith("stop all"));
}

TEST(Static, ASignalStopsAll) {
  Job job = three_ranks();
  EXPECT_EQ(stops(job), "fail: got SIGINT, stop all");
  EXPECT_EQ(stops(job), "") << "the launcher kills";
  EXPECT_EQ(job.killed(0), "");
  EXPECT_EQ(job.killed(1), "");
  EXPECT_EQ(loses(job, "b"), "finish 130");
}

TEST(Static, ASignalBeforeTheStart) {
  Job job(of_ranks(2));
  EXPECT_EQ(stops(job), "fail: got SIGINT, stop all, finish 130");
}

TEST(Static, ASignalWhileTheCauseIsAwaitedIsStillAFailure) {
  Job job = three_ranks();
  reports(job, 0, 1);
  job.exits(0, 1);
  EXPECT_EQ(stops(job), "fail: got SIGINT, stop all");
  job.killed(1);
  EXPECT_EQ(job.killed(2), "finish 1");
}

// Any events in any order: everything is stopped at most once, and the job ends when, and only when, all ranks have.
TEST(Static, EndsInEveryOrderOfEvents) {
  for (unsigned seed = 0; seed < 2000; seed++) {
    std::mt19937 random(seed);
    auto one_of = [&](unsigned count) { return random() % count; };
    Job job(of_ranks(5));
    job.hosts("a:2 b:2 c");
    std::set<uint64_t> living{0, 1, 2, 3, 4};
    bool has_failed = false;
    int stopped = 0;
    for (int step = 0; step < 1000 && !living.empty(); step++) {
      uint64_t id = one_of(5);
      std::string did;
      switch (one_of(8)) {
        case 0: did = reports(job, id, static_cast<int>(one_of(7)) - 1); break;
        case 1: did = job.pass(static_cast<double>(one_of(3))); break;
        case 2: did = one_of(20) == 0 ? stops(job) : ""; break;
        case 3:
          if (one_of(20) > 0) break;
          for (uint64_t gone : {0, 1}) living.erase(gone);
          has_failed = true;
          did = loses(job, "a");
          break;
        default:
          if (!living.erase(id)) break;
          bool fails = one_of(3) == 0;
          has_failed |= fails;
          did = fails ? job.killed(id) : job.exits(id);
      }
      stopped += did.find("stop all") != std::string::npos;
      ASSERT_LE(stopped, 1) << seed;
      ASSERT_EQ(job.driver.finished(), living.empty()) << seed;
      ASSERT_EQ(did.find("finish") != std::string::npos, living.empty()) << seed << did;
      bool is_awaiting = has_failed && stopped == 0;
      ASSERT_TRUE(!is_awaiting || job.driver.next_timer() != kNever) << seed << ": it waits for ever";
      ASSERT_TRUE(!living.empty() || stopped > 0 || did == "finish 0") << seed << did;
    }
    ASSERT_TRUE(job.driver.finished()) << seed;
  }
}

}  // namespace
}  // namespace hvd::elastic
