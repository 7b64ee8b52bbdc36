#include "negotiation/simulation.h"

namespace hvd {
namespace {

using testing::HasSubstr;

// What three ranks get when rank 2 submits another request than ranks 0 and 1.
Plan disagree(const Request& common, const Request& other) {
  Simulation world(3);
  world.submit(2, other);
  world.submit(0, common);
  world.submit(1, common);
  std::vector<Plan> plans = world.plans();
  EXPECT_EQ(plans.size(), 1u);
  EXPECT_EQ(names_of(plans), (Names{{common.name}}));
  Plan again = world.run(common);
  EXPECT_EQ(again.error, Code::ok) << "later operations continue: " << again.error_text;
  return plans.front();
}

template <class Change>
Plan disagree(Request common, Change change) {
  Request other = common;
  change(other);
  return disagree(common, other);
}

class Mismatch : public InEveryTree {};
INSTANTIATE_TEST_SUITE_P(Trees, Mismatch, testing::ValuesIn(all_shapes()), name_of_shape);

TEST_P(Mismatch, DataTypesAreNamedWithTheirRanks) {
  Plan plan = disagree(allreduce("allreduce.a"), [](Request& other) { other.dtype = DType::i64; });
  EXPECT_EQ(plan.error, Code::precondition);
  EXPECT_EQ(plan.error_text, "mismatched data types for tensor allreduce.a: rank 0 sent float32, rank 2 sent int64");
}

TEST_P(Mismatch, KindsMeetUnderOneName) {
  Plan plan = disagree(allreduce("a"), of_kind(Kind::allgather, "a"));
  EXPECT_EQ(plan.error_text, "mismatched operations for tensor a: rank 0 sent allreduce, rank 2 sent allgather");
  EXPECT_THAT(disagree(allreduce("a"), of_kind(Kind::barrier, "a", {})).error_text, HasSubstr("sent barrier"));
}

TEST_P(Mismatch, ShapesMustBeEqualInFull) {
  for (Kind kind : {Kind::allreduce, Kind::broadcast, Kind::reducescatter}) {
    Request common = of_kind(kind, "a", {2, 3});
    common.root_rank = 0;
    Plan plan = disagree(common, [](Request& other) { other.shape = {3, 3}; });
    EXPECT_EQ(plan.error_text, "mismatched shapes for tensor a: rank 0 sent [2, 3], rank 2 sent [3, 3]");
  }
}

TEST_P(Mismatch, FirstDimensionMayDifferWhereRowsAreConcatenated) {
  for (Kind kind : {Kind::allgather, Kind::alltoall}) {
    Simulation world(2);
    world.submit(0, of_kind(kind, "a", {0, 3}));
    world.submit(1, of_kind(kind, "a", {7, 3}));
    EXPECT_EQ(world.plans().at(0).error, Code::ok);
    Plan plan = disagree(of_kind(kind, "a", {2, 3}), of_kind(kind, "a", {2, 4}));
    EXPECT_THAT(plan.error_text, HasSubstr("mismatched shapes"));
    EXPECT_THAT(disagree(of_kind(kind, "a", {2, 3}), of_kind(kind, "a", {2})).error_text, HasSubstr("[2, 3]"));
  }
}

TEST_P(Mismatch, FactorsReduceOpRootAndPlacementAreCompared) {
  Request request = allreduce("a");
  EXPECT_EQ(disagree(request, [](Request& other) { other.prescale = 0.5; }).error_text,
            "mismatched prescale factors for tensor a: rank 0 sent 1, rank 2 sent 0.5");
  EXPECT_THAT(disagree(request, [](Request& other) { other.postscale = 2; }).error_text, HasSubstr("postscale"));
  EXPECT_EQ(disagree(request, [](Request& other) { other.reduce_op = ReduceOp::max; }).error_text,
            "mismatched reduce operations for tensor a: rank 0 sent sum, rank 2 sent max");
  EXPECT_EQ(disagree(request, [](Request& other) { other.device = 0; }).error_text,
            "mismatched devices for tensor a: rank 0 sent host, rank 2 sent accelerator");
  Request broadcast = of_kind(Kind::broadcast, "a");
  broadcast.root_rank = 0;
  EXPECT_EQ(disagree(broadcast, [](Request& other) { other.root_rank = 1; }).error_text,
            "mismatched root ranks for tensor a: rank 0 sent 0, rank 2 sent 1");
}

TEST_P(Mismatch, OrdinalsOfAcceleratorsMayDiffer) {
  Simulation world(2);
  for (int32_t rank : {1, 0}) {
    Request request = allreduce("a");
    request.device = rank;
    world.submit(rank, request);
  }
  EXPECT_EQ(world.plans().at(0).error, Code::ok);
}

TEST_P(Mismatch, GroupsAreCompared) {
  Plan plan = disagree(in_group("g", 1, allreduce("a")), allreduce("a"));
  EXPECT_EQ(plan.error_text, "mismatched groups for tensor a: rank 0 sent g of 1, rank 2 sent no group");
  EXPECT_THAT(disagree(in_group("g", 1, allreduce("a")), in_group("g", 2, allreduce("a"))).error_text,
              HasSubstr("rank 2 sent g of 2"));
}

TEST_P(Mismatch, FirstRuleWins) {
  Plan plan = disagree(allreduce("a"), [](Request& other) {
    other.dtype = DType::f64;
    other.shape = {9};
    other.kind = Kind::broadcast;
  });
  EXPECT_THAT(plan.error_text, HasSubstr("mismatched data types"));
}

TEST_P(Mismatch, OtherTensorsAreNotTouched) {
  Simulation world(2);
  world.submit(0, allreduce("a"));
  world.submit(0, allreduce("b"));
  world.submit(1, allreduce("a", {9}));
  world.submit(1, allreduce("b"));
  std::vector<Plan> plans = world.plans();
  ASSERT_EQ(names_of(plans), (Names{{"a"}, {"b"}}));
  EXPECT_EQ(plans[0].error, Code::precondition);
  EXPECT_EQ(plans[1].error, Code::ok);
}

TEST_P(Mismatch, CachedNameCanFailAndRecover) {
  Simulation world(2);
  world.run(allreduce("a"));
  world.submit(0, allreduce("a"));
  world.submit(1, allreduce("a", {9}));
  EXPECT_EQ(world.plans().at(0).error, Code::precondition);
  EXPECT_EQ(world.run(allreduce("a", {9})).first().shape, Shape{9});
  EXPECT_EQ(world.run(allreduce("a")).error, Code::ok);
}

class Violation : public InEveryTree {};
INSTANTIATE_TEST_SUITE_P(Trees, Violation, testing::ValuesIn(all_shapes()), name_of_shape);

TEST_P(Violation, ScalarsCannotBeSplit) {
  for (Kind kind : {Kind::allgather, Kind::alltoall, Kind::reducescatter}) {
    Simulation world(2);
    Plan plan = world.run(of_kind(kind, "a", {}));
    EXPECT_EQ(plan.error, Code::precondition);
    EXPECT_THAT(plan.error_text, HasSubstr(std::string(name_of(kind)) + " of a scalar"));
  }
  Simulation world(2);
  EXPECT_EQ(world.run(allreduce("a", {})).error, Code::ok);
}

TEST_P(Violation, ReducescatterKnowsSumAndAverageOnly) {
  Simulation world(2);
  Request request = of_kind(Kind::reducescatter, "a");
  for (ReduceOp op : {ReduceOp::min, ReduceOp::max, ReduceOp::product, ReduceOp::adasum}) {
    request.reduce_op = op;
    Plan plan = world.run(request);
    EXPECT_EQ(plan.error, Code::aborted);
    EXPECT_THAT(plan.error_text, HasSubstr("reducescatter supports only sum and average"));
  }
  request.reduce_op = ReduceOp::average;
  EXPECT_EQ(world.run(request).error, Code::ok);
}

TEST_P(Violation, BroadcastRootMustBeInTheSet) {
  Simulation world(3);
  int32_t set = world.run(add_set({0, 1})).result;
  Request request = in_set(set, of_kind(Kind::broadcast, "a"));
  request.root_rank = 2;
  world.submit(0, request);
  world.submit(1, request);
  EXPECT_EQ(world.plans().at(0).error_text, "root rank 2 of broadcast a is not in process set 1");
}

}  // namespace
}  // namespace hvd
