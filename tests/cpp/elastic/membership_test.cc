#include "elastic/driver.h"
#include "elastic/job.h"

namespace hvd::elastic {
namespace {

using testing::Contains;
using testing::StartsWith;

TEST(Joining, NewcomersComeTogether) {
  Job job = three_hosts();
  EXPECT_EQ(job.hosts("a b c d:2"), "start 4 d/0, start 5 d/1");
  EXPECT_EQ(job.ready({4}), "");
  EXPECT_EQ(job.ready({5}), "notify 1 2 3: added");
}

TEST(Joining, ButDoNotWaitLongForEachOther) {
  Job job = three_hosts();
  job.hosts("a b c d:2");
  EXPECT_EQ(job.ready({4}), "");
  EXPECT_EQ(job.pass(5), "notify 1 2 3: added");
  EXPECT_EQ(job.ready({1, 2, 3}), "generation 2: 1@a 2@b 3@c 4@d");
  EXPECT_EQ(job.ready({5}), "notify 1 2 3 4: added");
}

TEST(Joining, TimestampsGrow) {
  Settings settings{.np = 3, .min_np = 2, .gather_grace = seconds(0), .epoch_offset = 5000};
  Job job = three_hosts(settings);
  job.hosts("a b c d:2");
  job.ready({4, 5});
  EXPECT_EQ(job.timestamps.at(0), 6000);
  EXPECT_GT(job.timestamps.at(1), job.timestamps.at(0));
}

TEST(Draining, AHostLeavesWithoutHarmToTheOthers) {
  Job job = three_hosts();
  EXPECT_EQ(job.hosts("a c"), "notify 1 2 3: removed");
  EXPECT_EQ(job.ready({1, 2}), "");
  EXPECT_EQ(job.ready({3}), "generation 2: 1@a 3@c, leave 2");
  EXPECT_EQ(job.exits(2), "");
  EXPECT_EQ(job.driver.next_timer(), kNever);
}

TEST(Draining, FewerSlotsDrainTheLastOnes) {
  Job job({.np = 3, .min_np = 1});
  job.hosts("a:3");
  job.ready({1, 2, 3});
  EXPECT_EQ(job.hosts("a:1"), "notify 1 2 3: removed");
  EXPECT_EQ(job.ready({1, 2, 3}), "generation 2: 1@a, leave 2, leave 3");
}

TEST(Draining, WhoDoesNotLeaveIsStopped) {
  Job job = three_hosts();
  job.hosts("a c");
  job.ready({1, 2, 3});
  EXPECT_EQ(job.pass(30), "stop 2");
  EXPECT_EQ(job.pass(30), "") << "and given up";
  EXPECT_EQ(job.driver.next_timer(), kNever);
}

TEST(Draining, WorkersAreKeptWhileTheOthersAreTooFew) {
  Job job = three_hosts({.np = 3, .min_np = 3});
  EXPECT_EQ(job.hosts("a b"), "") << "workers are not interrupted for a generation that cannot form";
  EXPECT_EQ(job.driver.waiting_for(),
            "3 slots: 2 slots are listed (a:1, b:1); keeping workers that have lost their slots until then");
  EXPECT_EQ(job.hosts("a b d"), "start 4 d/0");
  EXPECT_EQ(job.ready({4}), "notify 1 2 3: mixed");
  EXPECT_EQ(job.ready({1, 2, 3}), "generation 2: 1@a 2@b 4@d, leave 3");
}

TEST(Draining, TheWaitForSlotsIsLimited) {
  Job job = three_hosts({.np = 3, .min_np = 3});
  job.hosts("a b");
  EXPECT_THAT(job.pass(600), StartsWith("fail: waited 600 s for 3 slots: 2 slots are listed (a:1, b:1)"));
}

TEST(Draining, AListThatFlapsChangesNothing) {
  Job job = three_hosts({.np = 3, .min_np = 3});
  EXPECT_EQ(job.hosts(""), "");
  EXPECT_EQ(job.pass(599), "");
  EXPECT_EQ(job.hosts("c b a"), "") << "the order of the list is not that of the ranks";
  EXPECT_EQ(job.pass(600), "");
}

TEST(Draining, AFailureMeanwhileStillUsesTheKeptWorkers) {
  Job job = three_hosts({.np = 3, .min_np = 2});
  EXPECT_EQ(job.hosts("a"), "");
  job.killed(3);
  EXPECT_EQ(job.ready({1, 2}), "generation 2: 1@a 2@b");
}

TEST(Draining, WhenAllHostsChangeOneHandsTheStateOver) {
  Job job = three_hosts({.np = 3, .min_np = 2, .max_np = 3});
  EXPECT_EQ(job.hosts("d e f"), "start 4 d/0, start 5 e/0, start 6 f/0");
  EXPECT_EQ(job.ready({4, 5, 6}), "notify 1 2 3: mixed, notify 1 2 3: added");
  EXPECT_EQ(job.ready({3, 2, 1}), "generation 2: 1@a 4@d 5@e, leave 2, leave 3, notify 1 4 5: mixed")
      << "6 waits for the next";
  EXPECT_EQ(job.ready({1, 4, 5}), "generation 3: 4@d 5@e 6@f, leave 1");
}

TEST(Draining, NewcomersThatLoseTheirSlotGoAtOnce) {
  Job job = three_hosts();
  job.hosts("a b c d:2");
  job.ready({4});
  EXPECT_EQ(job.hosts("a b c"), "stop 5, leave 4");
}

TEST(Leaving, IsAnnouncedAndDoneAtTheNextCommit) {
  Job job = three_hosts();
  EXPECT_EQ(job.leaving(2), "notify 1 2 3: removed");
  EXPECT_EQ(job.ready({2}), "leave 2");
  EXPECT_EQ(job.exits(2), "");
  EXPECT_EQ(job.ready({1, 3}), "generation 2: 1@a 3@c");
  EXPECT_EQ(job.pass(59), "") << "its host is about to go";
  EXPECT_EQ(job.pass(1), "start 4 b/0");
}

TEST(Leaving, HappensAlsoBelowTheMinimum) {
  Job job = three_hosts({.np = 3, .min_np = 3});
  EXPECT_EQ(job.leaving(2), "notify 1 2 3: removed");
  EXPECT_EQ(job.ready({1, 2, 3}), "leave 2");
  EXPECT_THAT(job.driver.waiting_for(), StartsWith("3 workers: 2 are there"));
}

TEST(Leaving, WhoRunsOutOfTimeHasNotFailed) {
  Job job = three_hosts();
  job.leaving(2);
  EXPECT_EQ(job.exits(2, 143), "");
  EXPECT_EQ(job.ready({1, 3}), "generation 2: 1@a 3@c");
}

TEST(Leaving, WhoFinishesInsteadHasSucceeded) {
  Job job({.np = 1, .min_np = 1});
  job.hosts("a");
  job.ready({1});
  job.leaving(1);
  EXPECT_EQ(job.exits(1), "finish 0");
}

TEST(Leaving, IsNoFailureWhileTheJobFinishes) {
  Job job = three_hosts();
  job.exits(1);
  EXPECT_EQ(job.leaving(2), "");
  EXPECT_EQ(job.exits(2, 143), "");
  EXPECT_EQ(job.exits(3), "finish 0");
}

TEST(Leaving, TheLastWithTheStateHandsItOver) {
  Job job({.np = 1, .min_np = 1});
  job.hosts("a");
  job.ready({1});
  EXPECT_EQ(job.leaving(1), "notify 1: removed");
  EXPECT_EQ(job.hosts("a b"), "start 2 b/0");
  EXPECT_EQ(job.ready({1}), "") << "waits for its heir";
  EXPECT_EQ(job.ready({2}), "generation 2: 1@a 2@b, notify 1 2: removed");
  EXPECT_EQ(job.ready({2, 1}), "leave 1, generation 3: 2@b");
}

TEST(Leaving, OfAllEndsTheJob) {
  Job job({.np = 1, .min_np = 1});
  job.hosts("a");
  job.ready({1});
  job.leaving(1);
  EXPECT_EQ(job.ready({1}), "leave 1, fail: no worker of generation 1 is left: all have left, stop 1");
}

TEST(ResetLimit, ZeroForbidsEveryChange) {
  Job job = three_hosts({.np = 3, .min_np = 1, .reset_limit = 0});
  EXPECT_EQ(job.hosts("a b c d"), "") << "an additional host does no harm";
  EXPECT_THAT(job.said, Contains("the reset limit of 0 is reached: starting no more workers"));
  job.killed(3);
  EXPECT_EQ(
      job.ready({1, 2}),
      "fail: the reset limit of 0 is reached, and another generation is needed: worker 3 (rank 2, host c) was killed "
      "by signal 9, stop 1, stop 2");
}

TEST(ResetLimit, CountsGenerationsAfterTheFirst) {
  Job job = three_hosts({.np = 3, .min_np = 1, .reset_limit = 1});
  EXPECT_EQ(job.hosts("a b c d"), "start 4 d/0");
  job.ready({4});
  EXPECT_EQ(job.ready({1, 2, 3}), "generation 2: 1@a 2@b 3@c 4@d");
  EXPECT_EQ(job.driver.resets(), 1);
  EXPECT_EQ(job.hosts("a b c"), "notify 1 2 3 4: removed");
  EXPECT_THAT(job.ready({1, 2, 3, 4}), StartsWith("fail: the reset limit of 1 is reached"));
}

TEST(ResetLimit, NobodyWaitsOutsideWhenItIsReached) {
  Job job = three_hosts({.np = 3, .min_np = 1, .reset_limit = 1});
  EXPECT_EQ(job.hosts("a b c d e"), "start 4 d/0, start 5 e/0");
  job.killed(1);
  EXPECT_EQ(job.ready({2, 3}), "generation 2: 2@b 3@c, stop 5, stop 4");
}

TEST(ResetLimit, ALateWorkerDoesNotEndTheJobOfTheOthers) {
  Job job = three_hosts({.np = 3, .min_np = 1, .reset_limit = 1});
  job.ready({1, 2});
  EXPECT_EQ(job.pass(10), "generation 2: 1@a 2@b");
  EXPECT_EQ(job.ready({3}), "leave 3");
}

TEST(Maximum, AReplacementThatIsNotNeededAnyMoreIsLetGo) {
  Job job({.np = 2, .min_np = 2, .max_np = 2});
  job.hosts("a b");
  job.ready({1, 2});
  EXPECT_EQ(job.hosts("a c"), "start 3 c/0");
  EXPECT_EQ(job.hosts("a c b"), "stop 3");
  EXPECT_EQ(job.driver.waiting_for(), "");
}

}  // namespace
}  // namespace hvd::elastic
