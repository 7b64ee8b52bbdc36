#include "negotiation/stalls.h"

#include "negotiation/simulation.h"

namespace hvd {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

CoordinatorSettings named(int32_t size) {
  CoordinatorSettings settings;
  for (int32_t rank = 0; rank < size; rank++) {
    settings.rank_names.push_back(
        fmt::format("rank {} (host{}, pid {})", rank, static_cast<char>('a' + rank), 4711 + rank));
  }
  return settings;
}

class Stalls : public InEveryTree {};
INSTANTIATE_TEST_SUITE_P(Trees, Stalls, testing::ValuesIn(all_shapes()), name_of_shape);

TEST_P(Stalls, ReportSaysWhoWaitsWhereAndWhoIsMissing) {
  Simulation world(4, named(4));
  world.submit(3, barrier());
  world.pass(0.5);
  for (int32_t rank : {0, 1, 2}) world.submit(rank, allreduce("allreduce.grad.12"));
  EXPECT_TRUE(world.decide().empty());
  world.expect_deadline(world.now + seconds(59.5));
  world.pass(60.5);
  EXPECT_EQ(world.decide_one<StallReport>().text,
            "some ranks have waited for others for more than 60.0 s:\n"
            "barrier: rank 3 has been waiting for 61.0 s; missing: ranks 0-2\n"
            "allreduce.grad.12: ranks 0-2 have been waiting for 60.5 s; missing: rank 3\n"
            "rank 0 (hosta, pid 4711) has been waiting in allreduce.grad.12 for 60.5 s\n"
            "rank 1 (hostb, pid 4712) has been waiting in allreduce.grad.12 for 60.5 s\n"
            "rank 2 (hostc, pid 4713) has been waiting in allreduce.grad.12 for 60.5 s\n"
            "rank 3 (hostd, pid 4714) has been waiting in barrier for 61.0 s");
}

TEST_P(Stalls, ReportSaysWhatIdleRanksDidLast) {
  Simulation world(3);
  int32_t set = world.run(add_set({0, 1})).result;
  world.pass(1);
  world.submit(0, in_set(set, allreduce("grad.11")));
  world.submit(1, in_set(set, allreduce("grad.11")));
  world.plans();
  world.pass(1);
  world.submit(0, allreduce("grad.12"));
  world.pass(60);
  auto report = world.decide_one<StallReport>();
  const std::string& text = report.text;
  EXPECT_EQ(report.missing, (std::vector<int32_t>{1, 2}));
  EXPECT_THAT(text, HasSubstr("allreduce grad.12: rank 0 has been waiting for 60.0 s; missing: ranks 1-2"));
  EXPECT_THAT(text, HasSubstr("\nrank 1 has nothing pending; last finished allreduce grad.11 61.0 s ago"));
  EXPECT_THAT(text, HasSubstr("\nrank 2 has nothing pending; last finished add_process_set 62.0 s ago"));
}

TEST_P(Stalls, ReportKnowsRanksThatNeverSpokeAndThoseThatJoined) {
  Simulation world(3);
  world.submit(1, join());
  world.submit(0, allreduce("a"));
  world.submit(0, add_set({0}));
  world.pass(60);
  std::string text = world.decide_one<StallReport>().text;
  EXPECT_THAT(text, HasSubstr("allreduce a: rank 0 has been waiting for 60.0 s; missing: rank 2\n"));
  EXPECT_THAT(text, HasSubstr("\nrank 2 has not submitted anything yet"));
  EXPECT_THAT(text, HasSubstr("\nrank 1 has joined"));
}

TEST_P(Stalls, ManyTensorsAreMerged) {
  Simulation world(2);
  for (int i = 0; i < 18; i++) world.submit(0, allreduce(fmt::format("t{}", i)));
  for (int i = 0; i < 8; i++) world.submit(1, of_kind(Kind::broadcast, fmt::format("b{}", i)));
  world.pass(60);
  std::string text = world.decide_one<StallReport>().text;
  EXPECT_THAT(text, HasSubstr("allreduce t0, allreduce t1, allreduce t2, allreduce t3, allreduce t4, allreduce t5 "
                              "and 12 more: rank 0 has been waiting for 60.0 s; missing: rank 1\n"));
  EXPECT_THAT(text, HasSubstr("\nrank 1 has been waiting in broadcast b0 for 60.0 s, "));
  EXPECT_THAT(text, HasSubstr("broadcast b5 for 60.0 s and 2 more"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
}

TEST_P(Stalls, ReportComesOncePerInterval) {
  Simulation world(2);
  world.submit(0, allreduce("a"));
  world.pass(60);
  EXPECT_EQ(world.decide().size(), 1u);
  world.pass(30);
  world.submit(0, allreduce("b"));
  EXPECT_TRUE(world.decide().empty());
  world.expect_deadline(world.now + seconds(30));
  world.pass(30);
  EXPECT_THAT(world.decide_one<StallReport>().text, AllOf(HasSubstr("allreduce a"), Not(HasSubstr("allreduce b:"))));
  world.submit(1, allreduce("a"));
  world.submit(1, allreduce("b"));
  world.plans();
  world.expect_deadline(kNever);
}

TEST_P(Stalls, GroupWithoutItsOtherMembersIsReported) {
  Simulation world(2);
  world.submit_all(in_group("g", 3, allreduce("x")));
  world.submit_all(in_group("g", 3, allreduce("y")));
  world.pass(60);
  EXPECT_THAT(
      world.decide_one<StallReport>().text,
      HasSubstr(
          "allreduce x, allreduce y: ranks 0-1 have been waiting for 60.0 s; missing: other members of group g (2 of 3 "
          "are complete)"));
}

TEST_P(Stalls, TooLongAStallShutsDownAndMarksTheOffenders) {
  CoordinatorSettings settings;
  settings.stall_shutdown = seconds(90);
  Simulation world(3, settings);
  world.submit(0, allreduce("a"));
  world.submit(1, allreduce("a"));
  world.pass(60);
  EXPECT_THAT(world.decide_one<StallReport>().text, Not(HasSubstr("!")));
  world.expect_deadline(world.now + seconds(30));
  world.pass(30);
  std::vector<Decision> decisions = world.decide();
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_THAT(std::get<StallReport>(decisions[0]).text,
              AllOf(HasSubstr("missing: rank !2"), HasSubstr("\n!rank 2 has")));
  EXPECT_EQ(std::get<ShutdownNotice>(decisions[1]).rank, -1);
  EXPECT_THAT(std::get<ShutdownNotice>(decisions[1]).reason, HasSubstr("stalled for more than 90.0 s"));
  EXPECT_EQ(std::get<ShutdownNotice>(decisions[1]).origin.kind, OriginKind::deadline);
}

TEST_P(Stalls, ShutdownTimeBelowTheWarningTimeIsIgnored) {
  CoordinatorSettings settings;
  settings.stall_shutdown = seconds(10);
  Simulation world(2, settings);
  world.submit(0, allreduce("a"));
  world.pass(1000);
  std::vector<Decision> decisions = world.decide();
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<StallReport>(decisions[0]));
}

TEST_P(Stalls, CheckCanBeSwitchedOff) {
  CoordinatorSettings settings;
  settings.stall_check = false;
  settings.stall_shutdown = seconds(100);
  Simulation world(2, settings);
  world.submit(0, allreduce("a"));
  world.expect_deadline(kNever);
  world.pass(1e6);
  EXPECT_TRUE(world.decide().empty());
}

CoordinatorSettings with_timeout(double limit) {
  CoordinatorSettings settings;
  settings.collective_timeout = seconds(limit);
  return settings;
}

class Timeout : public InEveryTree {};
INSTANTIATE_TEST_SUITE_P(Trees, Timeout, testing::ValuesIn(all_shapes()), name_of_shape);

TEST_P(Timeout, OldRequestsFailAndNameTheMissingRanks) {
  Simulation world(3, with_timeout(30));
  world.submit(0, allreduce("a"));
  world.expect_deadline(world.now + seconds(30));
  world.pass(10);
  world.submit(1, allreduce("b"));
  world.pass(20);
  Plan plan = world.plans().at(0);
  EXPECT_EQ(names_of(plan), (std::vector<std::string>{"a"}));
  EXPECT_EQ(plan.error, Code::unknown);
  EXPECT_EQ(plan.error_text,
            "timed out after 30.0 s (HOROVOD_COLLECTIVE_TIMEOUT_SECONDS): allreduce a: rank 0 has been waiting for "
            "30.0 s; missing: "
            "ranks 1-2; rank 1 has been waiting in allreduce b for 20.0 s; rank 2 has not submitted anything yet");
  world.expect_deadline(world.now + seconds(10));
}

TEST_P(Timeout, LateRanksGetTheSameErrorOnce) {
  Simulation world(3, with_timeout(30));
  world.submit(0, allreduce("a"));
  world.pass(30);
  std::string text = world.plans().at(0).error_text;
  for (int32_t rank : {2, 1}) {
    world.submit(rank, allreduce("a"));
    std::vector<Plan> plans = world.plans();
    ASSERT_EQ(names_of(plans), (Names{{"a"}}));
    EXPECT_EQ(plans[0].error_text, text);
  }
  world.expect_deadline(kNever);
  EXPECT_EQ(world.run(allreduce("a")).error, Code::ok) << "the next attempt is a new one";
}

TEST_P(Timeout, LateRankTakesTheNextAttemptAlong) {
  Simulation world(2, with_timeout(30));
  world.submit(0, allreduce("a"));
  world.pass(30);
  world.plans();
  world.submit(0, allreduce("a"));
  EXPECT_TRUE(world.decide().empty());
  world.submit(1, allreduce("a"));
  EXPECT_EQ(world.plans().at(0).error, Code::unknown);
  EXPECT_EQ(world.run(allreduce("a")).error, Code::ok);
}

TEST_P(Timeout, RequestThatCrossesTheErrorIsFailedByItAlone) {
  Simulation world(4, with_timeout(30));
  world.submit(0, allreduce("a"));
  world.pass(30);
  world.ranks[2]->announce(allreduce("a"));  // on its way while the root gives up
  EXPECT_EQ(world.plans().at(0).error, Code::unknown);
  world.ranks[2]->announce(allreduce("a"));  // again, knowing the error
  ASSERT_TRUE(world.flush(2).ok());
  EXPECT_TRUE(world.decide().empty()) << "no rank waits for another answer";
  for (int32_t rank : {0, 1}) world.submit(rank, allreduce("a"));
  EXPECT_EQ(world.plans().at(0).error, Code::unknown) << "rank 1 comes late";
  for (int32_t rank : {0, 1, 2}) world.submit(rank, allreduce("a"));
  world.submit(3, allreduce("a"));
  EXPECT_EQ(world.plans().at(0).error, Code::unknown) << "rank 3 comes late";
  EXPECT_EQ(world.run(allreduce("a")).error, Code::ok);
}

TEST_P(Timeout, JoinOfAllForgetsWhatRanksOwe) {
  Simulation world(2, with_timeout(30));
  world.submit(0, allreduce("a"));
  world.pass(30);
  EXPECT_EQ(world.plans().at(0).error, Code::unknown);
  world.run(join());
  EXPECT_EQ(world.run(allreduce("a")).error, Code::ok);
}

TEST_P(Timeout, CachedNamesFailLikewise) {
  Simulation world(2, with_timeout(30));
  world.run(allreduce("a"));
  world.submit(0, allreduce("a"));
  world.pass(30);
  EXPECT_EQ(world.plans().at(0).error, Code::unknown);
  world.submit(1, allreduce("a"));
  EXPECT_EQ(world.plans().at(0).error, Code::unknown);
  EXPECT_EQ(world.run(allreduce("a")).error, Code::ok);
}

TEST_P(Timeout, RankThatSubmitsWhileTheErrorLingersSharesIt) {
  CoordinatorSettings settings = with_timeout(30);
  settings.tuning.cycle_time_ms = 1000;
  Simulation world(2, settings);
  world.submit(0, allreduce("a"));
  world.pass(30);
  EXPECT_TRUE(world.decide().empty());
  world.submit(1, allreduce("a"));
  world.pass(1);
  EXPECT_EQ(world.plans().at(0).error, Code::unknown);
  world.submit_all(allreduce("a"));
  world.pass(1);
  EXPECT_EQ(world.plans().at(0).error, Code::ok);
}

TEST_P(Timeout, WaitingForAJoinIsNotAStall) {
  Simulation world(2, with_timeout(30));
  world.submit(0, join());
  world.expect_deadline(kNever);
}

TEST(FindStalls, TellsMissingRanksOfOldEntriesOldestFirst) {
  Subtrees tree = Subtrees::of_single_ranks(3);
  RequestTable table(tree);
  RankSet joined(3);
  TimePoint start{};
  Members members(tree, {0, 1, 2});
  auto open = [&](const char* name, int32_t rank, TimePoint since) {
    Entry& entry = table.find_or_add({kWorldSet, name});
    table.open(entry, members, since);
    entry.submitted.insert(Rank{rank});
    entry.arrivals.push_back({.rank = Rank{rank},
                              .child = Child{rank},
                              .request = std::make_shared<const Request>(allreduce(name)),
                              .since = since});
    return &entry;
  };
  const Entry* first = open("a", 1, start);
  open("b", 0, start + seconds(5));
  std::vector<Stall> stalls = find_stalls(table, joined, start + seconds(10), seconds(10));
  ASSERT_EQ(stalls.size(), 1u);
  EXPECT_EQ(stalls[0].entry, first);
  EXPECT_EQ(stalls[0].missing, (std::vector<int32_t>{0, 2}));
  joined.insert(Rank{2});
  EXPECT_EQ(find_stalls(table, joined, start + seconds(15), seconds(10)).at(1).missing, (std::vector<int32_t>{1}));
}

}  // namespace
}  // namespace hvd
