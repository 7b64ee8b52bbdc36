#include "negotiation/simulation.h"

namespace hvd {
namespace {

using testing::HasSubstr;

class Join : public InEveryTree {};
INSTANTIATE_TEST_SUITE_P(Trees, Join, testing::ValuesIn(all_shapes()), name_of_shape);

TEST_P(Join, AllreducesGoOnWithoutTheJoinedRank) {
  Simulation world(3);
  world.submit(1, join());
  world.submit(0, allreduce("a"));
  EXPECT_TRUE(world.decide().empty());
  world.submit(2, allreduce("a"));
  EXPECT_EQ(names_of(world.plans()), (Names{{"a"}}));
  world.submit(0, allreduce("a"));
  world.submit(2, allreduce("a"));
  EXPECT_EQ(names_of(world.plans()), (Names{{"a"}})) << "joined ranks read plans by number, too";
}

TEST_P(Join, CompletesWhatWasPending) {
  Simulation world(2);
  world.submit(0, allreduce("a"));
  world.submit(1, join());
  EXPECT_EQ(names_of(world.plans()), (Names{{"a"}}));
}

TEST_P(Join, BarrierCountsJoinedRanksAsReady) {
  Simulation world(2);
  world.submit(1, join());
  world.submit(0, barrier());
  EXPECT_EQ(world.plans().at(0).error, Code::ok);
}

TEST_P(Join, OtherKindsFailWhileRanksHaveJoined) {
  Simulation world(2);
  world.submit(1, join());
  for (Kind kind : {Kind::allgather, Kind::broadcast, Kind::alltoall, Kind::reducescatter}) {
    world.submit(0, of_kind(kind, "a"));
    Plan plan = world.plans().at(0);
    EXPECT_EQ(plan.error, Code::precondition);
    EXPECT_THAT(plan.error_text, HasSubstr(std::string(name_of(kind)) + " is not supported while ranks have joined"));
    EXPECT_THAT(plan.error_text, HasSubstr("tensor a"));
  }
}

TEST_P(Join, OtherKindsThatEveryRankSubmittedAreExecuted) {
  Simulation world(2);
  world.submit(1, of_kind(Kind::allgather, "a"));
  world.submit(1, join());
  world.submit(0, of_kind(Kind::allgather, "a"));
  EXPECT_EQ(world.plans().at(0).error, Code::ok);
}

TEST_P(Join, OtherProcessSetsDoNotKnowJoins) {
  Simulation world(3);
  int32_t set = world.run(add_set({0, 1})).result;
  world.submit(1, join());
  world.submit(0, in_set(set, allreduce("a")));
  EXPECT_TRUE(world.decide().empty());
  world.submit(1, in_set(set, allreduce("a")));
  EXPECT_EQ(names_of(world.plans()), (Names{{"a"}}));
}

TEST_P(Join, ReturnsTheRankThatJoinedLastAndStartsOver) {
  Simulation world(3);
  for (std::vector<int32_t> order : {std::vector<int32_t>{2, 1, 0}, {0, 2, 1}}) {
    for (int32_t rank : order) {
      EXPECT_TRUE(world.decide().empty());
      world.submit(rank, join());
    }
    std::vector<Plan> plans = world.plans();
    ASSERT_EQ(plans.size(), 1u);
    EXPECT_EQ(plans[0].first().kind, Kind::join);
    EXPECT_EQ(plans[0].result, order.back());
    world.submit(0, allreduce("a"));
    EXPECT_TRUE(world.decide().empty()) << "no rank is joined any more";
    world.submit(1, allreduce("a"));
    world.submit(2, allreduce("a"));
    EXPECT_EQ(names_of(world.plans()), (Names{{"a"}}));
  }
}

TEST_P(Join, HighestOfThoseThatJoinTogetherIsTheLast) {
  Simulation world(3);
  world.submit(0, join());
  EXPECT_TRUE(world.decide().empty());
  world.submit(2, join());
  world.submit(1, join());
  EXPECT_EQ(world.plans().at(0).result, 2);
}

TEST_P(Join, PendingOperationsComeBeforeTheJoinOfAll) {
  Simulation world(2);
  world.submit(0, allreduce("a"));
  world.submit(0, join());
  world.submit(1, join());
  EXPECT_EQ(names_of(world.plans()), (Names{{"a"}, {"join.noname"}}));
}

TEST_P(Join, GroupsCompleteWithoutTheJoinedRank) {
  Simulation world(2);
  world.submit(0, in_group("g", 2, allreduce("x")));
  world.submit(1, join());
  EXPECT_TRUE(world.decide().empty());
  world.submit(0, in_group("g", 2, allreduce("y")));
  EXPECT_EQ(names_of(world.plans()), (Names{{"x", "y"}}));
}

TEST_P(Join, SubmittingOnTheWorldAfterJoiningBreaksTheRank) {
  Simulation world(2);
  world.submit(1, join());
  EXPECT_FALSE(world.try_submit(1, allreduce("a")).ok());
  EXPECT_FALSE(world.try_submit(1, join()).ok());
}

TEST_P(Join, ProcessSetsCanBeAddedByJoinedRanks) {
  Simulation world(2);
  world.submit(1, join());
  world.submit(0, add_set({0}));
  EXPECT_TRUE(world.decide().empty()) << "needs all ranks, joined or not";
  world.submit(1, add_set({0}));
  EXPECT_EQ(world.plans().at(0).result, 1);
}

}  // namespace
}  // namespace hvd
