#include "negotiation/groups.h"

#include "negotiation/simulation.h"

namespace hvd {
namespace {

CoordinatorSettings unfused() {
  CoordinatorSettings settings;
  settings.tuning.fusion_threshold = 0;
  return settings;
}

class GroupsTest : public InEveryTree {};
INSTANTIATE_TEST_SUITE_P(Trees, GroupsTest, testing::ValuesIn(all_shapes()), name_of_shape);

TEST_P(GroupsTest, MembersWaitForEachOtherAndComeTogether) {
  Simulation world(2, unfused());
  for (const char* name : {"x", "y", "z"}) world.submit(0, in_group("g", 3, allreduce(name)));
  world.submit(1, in_group("g", 3, allreduce("z")));
  world.submit(1, in_group("g", 3, allreduce("x")));
  EXPECT_TRUE(world.decide().empty());
  world.submit_all(allreduce("a"));
  world.submit(1, in_group("g", 3, allreduce("y")));
  EXPECT_EQ(names_of(world.plans()), (Names{{"a"}, {"x"}, {"y"}, {"z"}})) << "in the order they were first seen";
}

TEST_P(GroupsTest, MembersAreKnownBeforeTheFirstOfTheirMessageFails) {
  for (int32_t size : {1, 3}) {
    Simulation world(size);
    Request impossible = of_kind(Kind::reducescatter, "x");
    impossible.reduce_op = ReduceOp::adasum;
    for (int32_t rank = 0; rank < size; rank++) {
      world.ranks[rank]->announce(in_group("g", 2, impossible));
      world.ranks[rank]->announce(in_group("g", 2, allreduce("y")));
      ASSERT_TRUE(world.flush(rank).ok());
    }
    std::vector<Plan> plans = world.plans();
    ASSERT_EQ(names_of(plans), (Names{{"x"}, {"y"}}));
    EXPECT_EQ(plans[0].error, Code::aborted);
    EXPECT_EQ(plans[1].error, Code::ok);
  }
}

TEST_P(GroupsTest, WorkAgainFromTheCache) {
  Simulation world(2);
  for (int i = 0; i < 3; i++) {
    for (const char* name : {"x", "y"}) world.submit_all(in_group("g", 2, allreduce(name)));
    EXPECT_EQ(names_of(world.plans()), (Names{{"x", "y"}}));
  }
}

TEST_P(GroupsTest, MayHoldDifferentKinds) {
  Simulation world(2);
  world.submit_all(in_group("g", 2, allreduce("x")));
  EXPECT_TRUE(world.decide().empty());
  world.submit_all(in_group("g", 2, barrier()));
  EXPECT_EQ(names_of(world.plans()), (Names{{"x"}, {"barrier.noname"}}));
}

TEST_P(GroupsTest, SameGroupNameInAnotherSetIsAnotherGroup) {
  Simulation world(2);
  int32_t set = world.run(add_set({0})).result;
  world.submit(0, in_set(set, in_group("g", 2, allreduce("x"))));
  world.submit_all(in_group("g", 2, allreduce("y")));
  EXPECT_TRUE(world.decide().empty());
  world.submit(0, in_set(set, in_group("g", 2, allreduce("z"))));
  EXPECT_EQ(names_of(world.plans()), (Names{{"x", "z"}}));
}

TEST_P(GroupsTest, FurtherMembersOfAFullGroupStartTheNext) {
  Simulation world(2, unfused());
  for (const char* name : {"a", "b", "c", "d"}) world.submit(0, in_group("g", 2, allreduce(name)));
  world.submit(1, in_group("g", 2, allreduce("a")));
  world.submit(1, in_group("g", 2, allreduce("c")));
  EXPECT_TRUE(world.decide().empty());
  world.submit(1, in_group("g", 2, allreduce("d")));
  EXPECT_EQ(names_of(world.plans()), (Names{{"c"}, {"d"}}));
  world.submit(1, in_group("g", 2, allreduce("b")));
  EXPECT_EQ(names_of(world.plans()), (Names{{"a"}, {"b"}}));
}

TEST_P(GroupsTest, FailedMemberDoesNotHoldTheOthers) {
  Simulation world(2);
  world.submit(0, in_group("g", 2, allreduce("x")));
  world.submit(0, in_group("g", 2, allreduce("y")));
  world.submit(1, in_group("g", 2, allreduce("y")));
  world.submit(1, in_group("g", 2, allreduce("x", {9})));
  std::vector<Plan> plans = world.plans();
  ASSERT_EQ(names_of(plans), (Names{{"x"}, {"y"}}));
  EXPECT_EQ(plans[0].error, Code::precondition);
  EXPECT_EQ(plans[1].error, Code::ok);
}

TEST_P(GroupsTest, RanksThatDisagreeAboutTheGroupDoNotHang) {
  Simulation world(2);
  world.submit(0, in_group("g", 2, allreduce("x")));
  world.submit(0, in_group("g", 2, allreduce("y")));
  world.submit(1, in_group("h", 2, allreduce("x")));
  world.submit(1, in_group("h", 2, allreduce("y")));
  std::vector<Plan> plans = world.plans();
  ASSERT_EQ(names_of(plans), (Names{{"x"}, {"y"}}));
  for (const Plan& plan : plans) EXPECT_EQ(plan.error, Code::precondition);
  for (const char* name : {"x", "y"}) world.submit_all(in_group("g", 2, allreduce(name)));
  EXPECT_EQ(names_of(world.plans()), (Names{{"x", "y"}})) << "nothing is left of the failed ones";
}

TEST_P(GroupsTest, MembersThatDisagreeAboutTheSizeFailInsteadOfHanging) {
  Simulation world(2);
  world.submit_all(in_group("g", 2, allreduce("x")));
  world.submit_all(in_group("g", 3, allreduce("y")));
  std::vector<Plan> plans = world.plans();
  ASSERT_EQ(names_of(plans), (Names{{"y"}, {"x"}}));
  EXPECT_THAT(plans[0].error_text, testing::HasSubstr("mismatched sizes of group g"));
  EXPECT_EQ(plans[1].error, Code::ok);
}

}  // namespace
}  // namespace hvd
