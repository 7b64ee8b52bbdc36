#include "elastic/driver.h"

#include "elastic/job.h"

namespace hvd::elastic {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

TEST(Start, OneHostWithSlotsIsACluster) {
  Job job({.np = 2, .min_np = 1});
  EXPECT_EQ(job.hosts("a:2"), "start 1 a/0, start 2 a/1");
  EXPECT_EQ(job.ready({2}), "");
  EXPECT_EQ(job.ready({1}), "generation 1: 1@a 2@a");
}

TEST(Start, UsesEverySlotUpToTheMaximum) {
  Job job({.np = 2, .min_np = 2, .max_np = 3});
  EXPECT_EQ(job.hosts("a:2 b:2"), "start 1 a/0, start 2 a/1, start 3 b/0");
  EXPECT_EQ(job.ready({1, 2}), "") << "the third is starting";
  EXPECT_EQ(job.ready({3}), "generation 1: 1@a 2@a 3@b");
}

TEST(Start, WaitsForSlotsAndFailsWithTheirNumber) {
  Job job({.np = 4, .min_np = 2});
  EXPECT_EQ(job.hosts("a:2"), "start 1 a/0, start 2 a/1");
  EXPECT_EQ(job.ready({1, 2}), "");
  EXPECT_EQ(job.driver.waiting_for(), "4 slots: 2 slots are listed (a:2)");
  EXPECT_EQ(job.pass(599), "");
  EXPECT_EQ(job.pass(1), "fail: waited 600 s for 4 slots: 2 slots are listed (a:2), stop 1, stop 2");
  EXPECT_EQ(job.killed(1), "");
  EXPECT_EQ(job.killed(2), "finish 1");
  EXPECT_TRUE(job.driver.finished());
}

TEST(Start, GoesOnWithTheMinimumAfterTheStartTimeout) {
  Job job({.np = 3, .min_np = 2});
  job.hosts("a b c");
  EXPECT_EQ(job.on(StartFailed{WorkerId{3}, "no route to host"}), "");
  EXPECT_THAT(
      job.said,
      Contains(StartsWith("worker 3 (host c) could not be started: no route to host; retrying the host in 0.")));
  EXPECT_EQ(job.ready({1, 2}), "");
  EXPECT_EQ(job.pass(29), "start 4 c/0") << "after its rest";
  EXPECT_EQ(job.pass(1), "generation 1: 1@a 2@b");
  EXPECT_EQ(job.ready({4}), "notify 1 2: added");
}

TEST(Start, AShortElasticTimeoutIsNoLimitOfTheFirstImports) {
  Job job({.np = 2, .min_np = 2, .elastic_timeout = seconds(5), .start_timeout = seconds(60)});
  EXPECT_EQ(job.hosts("a:2"), "start 1 a/0, start 2 a/1");
  EXPECT_EQ(job.pass(20), "");
  EXPECT_EQ(job.ready({1}), "");
  EXPECT_EQ(job.pass(20), "");
  EXPECT_EQ(job.ready({2}), "generation 1: 1@a 2@a");
  EXPECT_EQ(job.hosts("a:3"), "start 3 a/2");
  EXPECT_EQ(job.pass(5), "stop 3") << "after a change it is";
}

TEST(Start, TheFirstImportsHaveALimit) {
  Job job({.np = 1, .min_np = 1, .elastic_timeout = seconds(5), .start_timeout = seconds(60)});
  job.hosts("a");
  EXPECT_EQ(job.pass(59), "");
  EXPECT_THAT(job.pass(1), StartsWith("stop 1"));
  EXPECT_THAT(job.said.back(), HasSubstr("has not asked for a place for 60 s"));
}

TEST(Start, TheTimeForImportsBeginsWhenTheSlotsAreThere) {
  Job job({.np = 2, .min_np = 2, .elastic_timeout = seconds(100), .start_timeout = seconds(60)});
  EXPECT_EQ(job.hosts("a"), "start 1 a/0");
  job.ready({1});
  EXPECT_EQ(job.pass(90), "");
  EXPECT_EQ(job.hosts("a b"), "start 2 b/0");
  EXPECT_EQ(job.pass(50), "");
  EXPECT_EQ(job.ready({2}), "generation 1: 1@a 2@b");
}

TEST(Start, EndsWhenEveryWorkerFails) {
  Job job({.np = 2, .min_np = 1});
  job.hosts("a b");
  EXPECT_EQ(job.exits(1, 1), "");
  EXPECT_EQ(
      job.exits(2, 3),
      "fail: every worker failed before training began: worker 1 (host a) ended with exit code 1 before it was ready; "
      "worker 2 (host b) ended with exit code 3 before it was ready, finish 1");
}

TEST(Start, AScriptThatNeverAsksForAPlaceMaySucceed) {
  Job job({.np = 2, .min_np = 2});
  job.hosts("a:2");
  EXPECT_EQ(job.exits(1), "stop 2");
  EXPECT_EQ(job.exits(2), "finish 0");
}

TEST(Failure, CostsOnlyTheProcess) {
  Job job = three_hosts();
  EXPECT_EQ(job.killed(2), "");
  EXPECT_EQ(job.driver.waiting_for(), "worker 1 (rank 0, host a), worker 3 (rank 2, host c) to ask for the next place");
  EXPECT_EQ(job.ready({3, 1}), "generation 2: 1@a 3@c");
  EXPECT_THAT(job.said,
              Contains("generation 2 has 2 ranks on a:1, c:1: worker 2 (rank 1, host b) was killed by signal 9"));
  EXPECT_EQ(job.pass(1), "start 4 b/0") << "the host is tried again after its rest";
  EXPECT_EQ(job.ready({4}), "notify 1 3: added");
  EXPECT_EQ(job.ready({1, 3}), "generation 3: 1@a 3@c 4@b") << "newcomers come behind";
}

TEST(Failure, BelowTheMinimumTheOthersWaitForAReplacement) {
  Job job = three_hosts({.np = 3, .min_np = 3});
  job.exits(3, 1);
  EXPECT_EQ(job.ready({1, 2}), "");
  EXPECT_THAT(job.driver.waiting_for(),
              HasSubstr("3 workers: 2 are there, 0 are starting; 3 slots are listed (a:1, b:1, "
                        "c:1); resting after a failure: host c for 0."));
  EXPECT_EQ(job.pass(1), "start 4 c/0");
  EXPECT_EQ(job.ready({4}), "generation 2: 1@a 2@b 4@c");
}

TEST(Failure, TheWaitForAReplacementEndsWithWords) {
  Job job = three_hosts({.np = 3, .min_np = 3, .elastic_timeout = seconds(10)});
  job.exits(3, 1);
  job.hosts("a b");
  EXPECT_EQ(job.ready({1, 2}), "");
  EXPECT_EQ(job.pass(10),
            "fail: waited 10 s for 3 slots: 2 slots are listed (a:1, b:1); the last failure: worker 3 "
            "(rank 2, host c) ended with exit code 1, stop 1, stop 2");
}

TEST(Failure, WhileOthersReformIsOneMoreEvent) {
  Job job = three_hosts({.np = 3, .min_np = 1});
  job.killed(3);
  EXPECT_EQ(job.ready({1}), "");
  EXPECT_EQ(job.killed(2), "generation 2: 1@a");
}

TEST(Failure, OfOneThatWasAssignedBreaksTheNewGeneration) {
  Job job = three_hosts({.np = 3, .min_np = 1});
  job.killed(3);
  EXPECT_EQ(job.ready({1, 2}), "generation 2: 1@a 2@b");
  EXPECT_EQ(job.killed(2), "") << "worker 1 sits in the meeting of generation 2, which will fail";
  EXPECT_EQ(job.ready({1}), "generation 3: 1@a");
}

TEST(Failure, OfAllEndsTheJob) {
  Job job = three_hosts({.np = 3, .min_np = 1});
  job.killed(1);
  job.killed(2);
  EXPECT_EQ(job.exits(3, 7),
            "fail: no worker of generation 1 is left: worker 1 (rank 0, host a) was killed by signal 9; "
            "worker 2 (rank 1, host b) was killed by signal 9; worker 3 (rank 2, host c) ended with exit "
            "code 7, finish 1");
}

TEST(Failure, NewcomersDoNotBeginAgainFromNothing) {
  Job job({.np = 1, .min_np = 1});
  job.hosts("a");
  EXPECT_EQ(job.ready({1}), "generation 1: 1@a");
  EXPECT_EQ(job.hosts("a b"), "start 2 b/0");
  EXPECT_THAT(job.killed(1), StartsWith("fail: no worker of generation 1 is left"));
}

TEST(Failure, OfAHostTakesAllItsWorkers) {
  Job job({.np = 3, .min_np = 1});
  job.hosts("a b:2");
  EXPECT_EQ(job.ready({1, 2, 3}), "generation 1: 1@a 2@b 3@b");
  EXPECT_EQ(job.on(HostLost{"b", "connection timed out"}), "");
  EXPECT_EQ(job.ready({1}), "generation 2: 1@a");
  EXPECT_EQ(job.killed(2), "") << "late news";
  EXPECT_EQ(job.ready({3}), "leave 3") << "it was only cut off";
}

TEST(Failure, OfANewcomerDisturbsNobody) {
  Job job = three_hosts();
  EXPECT_EQ(job.hosts("a b c d"), "start 4 d/0");
  EXPECT_EQ(job.exits(4, 1), "");
  EXPECT_EQ(job.pass(1), "start 5 d/0");
}

// Two slots of a new host; the first worker there needs ten seconds until it asks.
Job two_newcomers() {
  Job job = three_hosts();
  EXPECT_EQ(job.hosts("a b c d:2"), "start 4 d/0, start 5 d/1");
  EXPECT_EQ(job.pass(10), "");
  EXPECT_EQ(job.ready({4}), "");
  return job;
}

TEST(Newcomers, OfOneChangeJoinTogether) {
  Job job = two_newcomers();
  EXPECT_EQ(job.pass(9), "");
  EXPECT_EQ(job.ready({5}), "notify 1 2 3: added");
  EXPECT_EQ(job.ready({1, 2, 3}), "generation 2: 1@a 2@b 3@c 4@d 5@d");
}

TEST(Newcomers, OneThatIsLateByMuchIsNotWaitedFor) {
  Job job = two_newcomers();
  EXPECT_EQ(job.pass(10), "notify 1 2 3: added");
  EXPECT_EQ(job.ready({1, 2, 3}), "generation 2: 1@a 2@b 3@c 4@d");
  EXPECT_EQ(job.ready({5}), "notify 1 2 3 4: added");
}

TEST(Newcomers, OneThatDiesIsNotWaitedFor) {
  Job job = two_newcomers();
  EXPECT_EQ(job.killed(5), "notify 1 2 3: added");
}

TEST(Newcomers, OneThatWasStartedLaterHasAMoment) {
  Job job = two_newcomers();
  EXPECT_EQ(job.killed(5), "notify 1 2 3: added");
  job = three_hosts();
  job.hosts("a b c d");
  job.pass(8);
  EXPECT_EQ(job.hosts("a b c d e"), "start 5 e/0");
  job.pass(2);
  EXPECT_EQ(job.ready({4}), "");
  EXPECT_EQ(job.pass(4.9), "");
  EXPECT_EQ(job.pass(0.1), "notify 1 2 3: added");
}

TEST(Newcomers, ALossIsNoTimeToWaitForThem) {
  Job job = two_newcomers();
  job.killed(3);
  EXPECT_EQ(job.ready({1, 2}), "generation 2: 1@a 2@b 4@d");
}

TEST(Silence, AnAccusedWorkerIsStopped) {
  Job job = three_hosts();
  EXPECT_EQ(job.accuses(1, 1), "");
  EXPECT_EQ(job.accuses(3, 1), "");
  EXPECT_EQ(job.pass(1.9), "");
  EXPECT_EQ(job.pass(0.1), "stop 2, generation 2: 1@a 3@c");
  EXPECT_EQ(job.pass(5), "") << "its slot is taken until its end";
  EXPECT_EQ(job.killed(2), "start 4 b/0");
}

TEST(Silence, WhoAsksItselfIsNotStopped) {
  Job job = three_hosts();
  job.accuses(1, 1);
  job.accuses(2, 0);
  EXPECT_EQ(job.pass(5), "");
  EXPECT_EQ(job.ready({3}), "generation 2: 1@a 2@b 3@c");
}

TEST(Silence, ALateWorkerMayJoinLater) {
  Job job = three_hosts();
  job.killed(3);
  EXPECT_EQ(job.ready({2}), "");
  EXPECT_EQ(job.pass(9), "start 4 c/0");
  EXPECT_EQ(job.pass(1), "") << "worker 1 is needed for the minimum";
  EXPECT_EQ(job.ready({4}), "generation 2: 2@b 4@c");
  EXPECT_THAT(job.said,
              Contains("worker 1 (rank 0, host a) has not come back in time: the others go on, it may join later"));
  EXPECT_EQ(job.ready({1}), "notify 2 4: added");
  EXPECT_EQ(job.ready({2, 4}), "generation 3: 2@b 4@c 1@a");
}

TEST(Silence, AnotherTakesThePlaceOfOneThatIsLate) {
  Job job({.np = 2, .min_np = 1, .max_np = 2});
  job.hosts("a b c");
  job.ready({1, 2});
  EXPECT_EQ(job.ready({1}), "");
  EXPECT_EQ(job.pass(10), "generation 2: 1@a, start 3 c/0");
  EXPECT_EQ(job.ready({3}), "notify 1: added");
  EXPECT_EQ(job.ready({1}), "generation 3: 1@a 3@c");
  EXPECT_EQ(job.ready({2}), "leave 2") << "there is no room any more";
}

TEST(Silence, OneThatIsLateAndComesBackFirstKeepsItsPlace) {
  Job job({.np = 2, .min_np = 1, .max_np = 2});
  job.hosts("a b c");
  job.ready({1, 2});
  job.ready({1});
  EXPECT_EQ(job.pass(10), "generation 2: 1@a, start 3 c/0");
  EXPECT_EQ(job.ready({2}), "stop 3, notify 1: added");
  EXPECT_EQ(job.ready({1}), "generation 3: 1@a 2@b");
}

TEST(Silence, ALateWorkerIsStoppedInTheEnd) {
  Job job = three_hosts();
  EXPECT_EQ(job.ready({2, 3}), "");
  EXPECT_EQ(job.pass(10), "generation 2: 2@b 3@c");
  EXPECT_EQ(job.pass(599), "");
  EXPECT_EQ(job.pass(1), "stop 1");
}

TEST(Silence, ANewcomerThatNeverAsksIsStopped) {
  Job job = three_hosts();
  EXPECT_EQ(job.hosts("a b c d"), "start 4 d/0");
  EXPECT_EQ(job.pass(600), "stop 4");
  EXPECT_EQ(job.pass(30), "start 5 d/0") << "given up";
}

TEST(Ending, FollowsASuccessWhenTheOthersHaveEnded) {
  Job job = three_hosts();
  EXPECT_EQ(job.exits(1), "");
  EXPECT_EQ(job.driver.waiting_for(), "2 more workers to finish");
  EXPECT_EQ(job.ready({2}), "leave 2") << "it waits for a generation that will not come";
  EXPECT_EQ(job.exits(2), "");
  EXPECT_EQ(job.exits(3), "finish 0");
}

TEST(Ending, WhoDoesNotFinishIsStoppedAndNamed) {
  Job job = three_hosts();
  job.exits(1);
  job.exits(2);
  EXPECT_EQ(job.pass(600), "stop 3");
  EXPECT_EQ(job.killed(3),
            "fail: not all workers of the last generation succeeded: worker 3 (rank 2, host c) has not "
            "finished 600 s after the first worker did, and was stopped, finish 1");
}

TEST(Ending, StartsNobodyAndStopsNewcomers) {
  Job job = three_hosts();
  job.hosts("a b c d:2");
  job.ready({4});
  EXPECT_EQ(job.exits(1), "leave 4, stop 5");
  EXPECT_EQ(job.killed(5), "");
  EXPECT_EQ(job.hosts("a b c d:3"), "");
  EXPECT_EQ(job.exits(4), "");
  EXPECT_EQ(job.exits(2), "");
  EXPECT_EQ(job.exits(3), "finish 0");
}

TEST(Ending, DoesNotWaitForOneThatIsLate) {
  Job job = three_hosts();
  job.ready({2, 3});
  job.pass(10);
  EXPECT_EQ(job.exits(2), "stop 1");
  EXPECT_EQ(job.exits(3), "");
  EXPECT_EQ(job.killed(1), "finish 0");
}

TEST(Ending, AFailureBesideASuccessIsTheJobs) {
  Job job = three_hosts();
  job.exits(1);
  job.exits(2, 5);
  EXPECT_EQ(job.exits(3),
            "fail: not all workers of the last generation succeeded: worker 2 (rank 1, host b) ended with "
            "exit code 5, finish 1");
}

TEST(Ending, AFailureThatWasRecoveredIsForgotten) {
  Job job = three_hosts();
  job.killed(3);
  job.ready({1, 2});
  job.exits(1);
  EXPECT_EQ(job.exits(2), "finish 0");
}

TEST(Ending, TheUserStopsTheJob) {
  Job job = three_hosts();
  EXPECT_EQ(job.on(StopJob{"interrupted by SIGINT", 130}), "fail: interrupted by SIGINT, stop 1, stop 2, stop 3");
  EXPECT_EQ(job.on(HostLost{"a", "gone"}), "");
  EXPECT_EQ(job.killed(2), "");
  EXPECT_EQ(job.pass(30), "finish 130") << "worker 3 is given up";
  EXPECT_EQ(job.hosts("x"), "");
}

TEST(Settings, AreChecked) {
  EXPECT_EQ(check({.min_np = 0}).message(), "--min-np must be at least 1, not 0");
  EXPECT_THAT(check({.np = 1, .min_np = 2}).message(), HasSubstr("-np 1 is less than --min-np 2"));
  EXPECT_THAT(check({.np = 3, .max_np = 2}).message(), HasSubstr("--max-np 2 is less than -np 3"));
  EXPECT_THAT(check({.reset_limit = -1}).message(), HasSubstr("--reset-limit"));
  EXPECT_THAT(check({.back_off = {seconds(20), seconds(10)}}).message(), HasSubstr("--blacklist-cooldown-range 20 10"));
}

}  // namespace
}  // namespace hvd::elastic
