#include "negotiation/simulation.h"

namespace hvd {
namespace {

class ProcessSetPlans : public InEveryTree {};
INSTANTIATE_TEST_SUITE_P(Trees, ProcessSetPlans, testing::ValuesIn(all_shapes()), name_of_shape);

TEST_P(ProcessSetPlans, IdsAreAssignedInOrderAndUsedAgain) {
  Simulation world(4);
  EXPECT_EQ(world.run(add_set({0, 1})).result, 1);
  EXPECT_EQ(world.run(add_set({2, 3})).result, 2);
  Plan removal = world.run(remove_set(1));
  EXPECT_EQ(removal.error, Code::ok);
  EXPECT_EQ(removal.first().process_set, 1);
  EXPECT_EQ(world.run(add_set({1, 2})).result, 1);
  EXPECT_EQ(world.run(add_set({0, 3})).result, 3);
}

TEST_P(ProcessSetPlans, NeedAllRanksOfTheWorld) {
  Simulation world(2);
  world.submit(0, add_set({0}));
  EXPECT_TRUE(world.decide().empty());
  world.submit(1, add_set({0}));
  EXPECT_EQ(world.plans().at(0).result, 1);
}

TEST_P(ProcessSetPlans, ImpossibleSetsAreRefusedByName) {
  Simulation world(2);
  world.run(add_set({1}));
  auto text = [&](std::vector<int32_t> ranks) {
    Plan plan = world.run(add_set(std::move(ranks)));
    EXPECT_EQ(plan.error, Code::precondition);
    return plan.error_text;
  };
  EXPECT_EQ(text({1}), "process set [1] exists already with id 1");
  EXPECT_EQ(text({0, 1}), "process set [0, 1] exists already with id 0");
  EXPECT_EQ(text({0, 2}), "process set [0, 2] has rank 2, but the world has ranks 0 to 1");
  EXPECT_EQ(text({-1, 0}), "process set [-1, 0] has rank -1, but the world has ranks 0 to 1");
  EXPECT_EQ(text({0, 0}), "process set [0, 0] has rank 0 more than once");
  EXPECT_EQ(text({}), "a process set needs at least one rank");
}

TEST_P(ProcessSetPlans, RanksThatAskForDifferentSetsDisagree) {
  Simulation world(2);
  world.submit(0, add_set({0}));
  world.submit(1, add_set({1}));
  EXPECT_EQ(world.plans().at(0).error_text,
            "mismatched ranks of the process set for tensor add_process_set: rank 0 sent [0], rank 1 sent [1]");
  world.submit(0, remove_set(1));
  world.submit(1, remove_set(2));
  EXPECT_EQ(world.plans().at(0).error_text,
            "mismatched process sets for tensor remove_process_set: rank 0 sent 1, rank 1 sent 2");
}

TEST_P(ProcessSetPlans, WorldAndUnknownSetsCannotBeRemoved) {
  Simulation world(2);
  EXPECT_EQ(world.run(remove_set(0)).error_text, "process set 0, the world, cannot be removed");
  EXPECT_EQ(world.run(remove_set(7)).error_text, "process set 7 does not exist");
}

TEST_P(ProcessSetPlans, WhatIsReadyComesBeforeTheRemoval) {
  Simulation world(2);
  int32_t set = world.run(add_set({0})).result;
  world.submit(0, in_set(set, allreduce("a")));
  world.submit_all(remove_set(set));
  std::vector<Plan> plans = world.plans();
  ASSERT_EQ(names_of(plans), (Names{{"a"}, {"remove_process_set"}}));
  EXPECT_EQ(plans[0].error, Code::ok);
}

TEST_P(ProcessSetPlans, PendingOperationsFailWithTheRemoval) {
  Simulation world(3);
  int32_t set = world.run(add_set({0, 1})).result;
  world.submit(0, in_set(set, allreduce("a")));
  world.submit(0, in_set(set, in_group("g", 2, allreduce("b"))));
  world.submit(1, in_set(set, in_group("g", 2, allreduce("b"))));
  world.submit_all(remove_set(set));
  std::vector<Plan> plans = world.plans();
  ASSERT_EQ(names_of(plans), (Names{{"a"}, {"b"}, {"remove_process_set"}}));
  EXPECT_EQ(plans[0].error, Code::precondition);
  EXPECT_EQ(plans[0].error_text, "process set 1 was removed");
  EXPECT_EQ(plans[1].error_text, "process set 1 was removed");
  world.expect_deadline(kNever);
}

TEST_P(ProcessSetPlans, RequestThatCrossesTheRemovalFailsInsteadOfBreakingTheRank) {
  Simulation world(2);
  int32_t set = world.run(add_set({0})).result;
  world.submit_all(remove_set(set));
  world.submit(0, in_set(set, allreduce("before")));  // the removal is decided but not sent
  world.ranks[0]->announce(in_set(set, allreduce("after")));
  std::vector<Plan> plans = world.plans();
  ASSERT_EQ(names_of(plans), (Names{{"remove_process_set"}, {"before"}}));
  EXPECT_EQ(plans[1].error_text, "process set 1 was removed");
  ASSERT_TRUE(world.flush(0).ok());
  EXPECT_EQ(world.plans().at(0).error_text, "process set 1 was removed");
  EXPECT_FALSE(world.try_submit(0, in_set(set, allreduce("a"))).ok()) << "now the rank knows better";
}

TEST_P(ProcessSetPlans, NewSetOfTheSameIdIsNotDisturbedByTheOldOne) {
  Simulation world(2);
  int32_t set = world.run(add_set({0})).result;
  world.run(remove_set(set));
  ASSERT_EQ(world.run(add_set({1})).result, set);
  world.submit(1, in_set(set, allreduce("a")));
  EXPECT_EQ(world.plans().at(0).error, Code::ok);
}

// ---- sets that their members form and leave ----

TEST_P(ProcessSetPlans, MembersAloneFormASet) {
  Simulation world(5);
  world.submit(1, form_set({1, 3}));
  world.submit(4, form_set({2, 4}));
  EXPECT_TRUE(world.decide().empty());
  world.submit(3, form_set({1, 3}));
  std::vector<Plan> plans = world.plans();
  ASSERT_EQ(names_of(plans), (Names{{"form 1,3"}}));
  EXPECT_EQ(plans[0].result, 1);
  EXPECT_EQ(plans[0].first().ranks, (std::vector<int32_t>{1, 3}));
  world.submit(1, in_set(1, allreduce("a")));
  world.submit(3, in_set(1, allreduce("a")));
  EXPECT_EQ(world.plans().at(0).error, Code::ok);
  world.submit(2, form_set({2, 4}));
  EXPECT_EQ(world.plans().at(0).result, 2);
  EXPECT_EQ(world.run(add_set({0, 1})).result, 3);  // all ranks count alike
}

TEST_P(ProcessSetPlans, SetsAreRemovedWhenTheLastMemberHasLeft) {
  Simulation world(4);
  int32_t set = world.run(add_set({0, 2, 3})).result;
  for (int32_t rank : {0, 2, 3}) world.submit(rank, in_set(set, allreduce("a")));
  EXPECT_EQ(world.plans().at(0).error, Code::ok);
  world.submit(3, leave_set(set));
  world.submit(0, in_set(set, allreduce("a")));
  world.submit(0, leave_set(set));
  EXPECT_TRUE(world.plans().empty());
  world.submit(2, leave_set(set));
  std::vector<Plan> plans = world.plans();
  ASSERT_EQ(names_of(plans), (Names{{"a"}, {"leave"}}));
  EXPECT_THAT(plans[0].error_text, testing::HasSubstr("removed"));
  EXPECT_EQ(plans[1].error, Code::ok);
  EXPECT_EQ(world.run(add_set({0, 1})).result, set);
}

TEST_P(ProcessSetPlans, WhatAllMembersSubmittedBeforeTheyLeftIsDone) {
  Simulation world(4);
  for (int32_t round = 0; round < 3; round++) {
    for (int32_t rank : {1, 2}) world.submit(rank, form_set({1, 2}));
    ASSERT_EQ(world.plans().at(0).result, 1) << round;
    for (int32_t use = 0; use < 2; use++) {  // the second time it is in the cache
      for (int32_t rank : {1, 2}) world.submit(rank, in_set(1, allreduce("a")));
      if (use == 0) ASSERT_EQ(world.plans().at(0).error, Code::ok);
    }
    for (int32_t rank : {1, 2}) world.submit(rank, leave_set(1));
    std::vector<Plan> plans = world.plans();
    ASSERT_EQ(names_of(plans), (Names{{"a"}, {"leave"}}));
    EXPECT_EQ(plans[0].error, Code::ok) << plans[0].error_text;
  }
}

TEST_P(ProcessSetPlans, ASetCanBeFormedAgainAtOnce) {
  Simulation world(3);
  for (int32_t rank : {0, 1}) world.submit(rank, form_set({0, 1}));
  ASSERT_EQ(world.plans().at(0).result, 1);
  for (int32_t rank : {0, 1}) {
    world.submit(rank, leave_set(1));
    world.submit(rank, form_set({0, 1}));
  }
  std::vector<Plan> plans = world.plans();
  ASSERT_EQ(names_of(plans), (Names{{"leave"}, {"form 0,1"}}));
  EXPECT_EQ(plans[1].error, Code::ok) << plans[1].error_text;
  for (int32_t rank : {0, 1}) world.submit(rank, in_set(1, allreduce("a")));
  EXPECT_EQ(world.plans().at(0).error, Code::ok);
}

TEST_P(ProcessSetPlans, FormingWhatExistsFailsForItsMembers) {
  Simulation world(4);
  world.run(add_set({1, 2}));
  for (int32_t round = 0; round < 2; round++) {
    world.submit(1, form_set({1, 2}));
    world.submit(2, form_set({1, 2}));
    EXPECT_EQ(world.plans().at(0).error_text, "process set [1, 2] exists already with id 1");
  }
}

TEST_P(ProcessSetPlans, PairsCannotBeRemoved) {
  Simulation world(3);
  EXPECT_EQ(world.run(remove_set(pair_set(0, 1))).error, Code::precondition);
}

TEST_P(ProcessSetPlans, StrangersCannotFormASet) {
  Simulation world(3);
  EXPECT_THAT(world.try_submit(0, form_set({1, 2})).message(), testing::HasSubstr("forms a process set without it"));
}

}  // namespace
}  // namespace hvd
