#include "negotiation/simulation.h"

namespace hvd {
namespace {

class Readiness : public InEveryTree {};
INSTANTIATE_TEST_SUITE_P(Trees, Readiness, testing::ValuesIn(all_shapes()), name_of_shape);

TEST_P(Readiness, NameIsPlannedOnceAllRanksSubmittedIt) {
  Simulation world(3);
  world.submit(0, allreduce("a"));
  world.submit(2, allreduce("a"));
  EXPECT_TRUE(world.decide().empty());
  world.submit(1, allreduce("a"));
  EXPECT_EQ(names_of(world.plans()), (Names{{"a"}}));
  EXPECT_TRUE(world.decide().empty());
}

TEST_P(Readiness, PlanCarriesTheWholeRequest) {
  Simulation world(2);
  Request request = of_kind(Kind::broadcast, "a", {2, 3});
  request.dtype = DType::bf16;
  request.root_rank = 1;
  Plan plan = world.run(request);
  EXPECT_EQ(plan.first(), request);
  EXPECT_EQ(plan.error, Code::ok);
  EXPECT_EQ(plan.result, -1);
}

TEST_P(Readiness, PlansComeInTheOrderOfCompletionNotOfSubmission) {
  CoordinatorSettings settings;
  settings.tuning.fusion_threshold = 0;
  Simulation world(2, settings);
  for (const char* name : {"a", "b", "c"}) world.submit(0, allreduce(name));
  for (const char* name : {"c", "a", "b"}) world.submit(1, allreduce(name));
  EXPECT_EQ(names_of(world.plans()), (Names{{"c"}, {"a"}, {"b"}}));
}

TEST_P(Readiness, NameCanBeUsedAgainAfterItsPlan) {
  Simulation world(2);
  for (int i = 0; i < 3; i++) EXPECT_EQ(world.run(allreduce("a", {i + 1})).first().shape, Shape{i + 1});
}

TEST_P(Readiness, SameNameInTwoProcessSetsIsTwoNegotiations) {
  Simulation world(2);
  int32_t set = world.run(add_set({0})).result;
  world.submit(0, allreduce("a"));
  world.submit(0, in_set(set, allreduce("a")));
  std::vector<Plan> plans = world.plans();
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0].first().process_set, set);
}

TEST_P(Readiness, WorldOfOneRankPlansAtOnce) {
  Simulation world(1);
  EXPECT_EQ(names_of(world.run(allreduce("a"))), (std::vector<std::string>{"a"}));
}

TEST_P(Readiness, ReadyNamesLingerForTheCycleTimeAndAreDecidedTogether) {
  CoordinatorSettings settings;
  settings.tuning.cycle_time_ms = 5;
  Simulation world(2, settings);
  world.expect_deadline(kNever);
  world.submit_all(allreduce("a"));
  TimePoint first = world.now;
  EXPECT_TRUE(world.decide().empty());
  world.expect_deadline(first + seconds(0.005));
  world.pass(0.003);
  world.submit_all(allreduce("b"));
  EXPECT_TRUE(world.decide().empty());
  world.expect_deadline(first + seconds(0.005));
  world.now = world.root.next_deadline();
  EXPECT_EQ(names_of(world.plans()), (Names{{"a", "b"}}));
  world.expect_deadline(kNever);
}

TEST_P(Readiness, TuningTakesEffectInOrderWithThePlans) {
  Simulation world(2);
  world.submit_all(allreduce("a"));
  world.submit_all(allreduce("b"));
  Tuning tuning{.fusion_threshold = 0, .cycle_time_ms = 0, .cache_enabled = false, .one_shot_limit = 77};
  world.root.tune(tuning);
  std::vector<Decision> decisions = world.decide();
  ASSERT_EQ(decisions.size(), 3u);
  EXPECT_EQ(std::get<Tuning>(decisions[0]), tuning);
  EXPECT_EQ(std::get<Plan>(decisions[1]).tensors.size(), 1u);
  world.root.tune(tuning);
  EXPECT_TRUE(world.decide().empty()) << "nothing changed";
}

TEST_P(Readiness, ShutdownNoticeFollowsThePlansThatAreReadyAndEndsEverything) {
  CoordinatorSettings settings;
  settings.tuning.cycle_time_ms = 1000;
  Simulation world(2, settings);
  world.submit_all(allreduce("a"));
  world.submit(0, allreduce("b"));
  Origin origin{.kind = OriginKind::exception, .rank = 1, .type = "ValueError", .text = "bad batch"};
  world.ranks[1]->announce_shutdown("done", origin);
  ASSERT_TRUE(world.flush(1).ok());
  std::vector<Decision> decisions = world.decide();
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(names_of(std::get<Plan>(decisions[0])), (std::vector<std::string>{"a"}));
  EXPECT_EQ(std::get<ShutdownNotice>(decisions[1]).rank, 1);
  EXPECT_EQ(std::get<ShutdownNotice>(decisions[1]).reason, "done");
  EXPECT_EQ(std::get<ShutdownNotice>(decisions[1]).origin, origin);
  world.submit(1, allreduce("b"));
  world.pass(1e6);
  EXPECT_TRUE(world.decide().empty());
  world.expect_deadline(kNever);
}

class Protocol : public InEveryTree {};
INSTANTIATE_TEST_SUITE_P(Trees, Protocol, testing::ValuesIn(all_shapes()), name_of_shape);

TEST_P(Protocol, SubmittingANameTwiceBreaksTheRank) {
  Simulation world(2);
  world.submit(0, allreduce("a"));
  Status status = world.try_submit(0, allreduce("a"));
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("a was submitted twice"));
}

TEST_P(Protocol, SubmittingANameThatIsReadyBreaksTheRank) {
  Simulation world(2);
  world.submit_all(allreduce("a"));
  EXPECT_FALSE(world.try_submit(0, allreduce("a")).ok());
}

TEST_P(Protocol, UnknownProcessSetAndForeignRankBreakTheRank) {
  Simulation world(3);
  EXPECT_FALSE(world.try_submit(0, in_set(1, allreduce("a"))).ok());
  ASSERT_EQ(world.run(add_set({0, 1})).result, 1);
  EXPECT_TRUE(world.try_submit(0, in_set(1, allreduce("a"))).ok());
  EXPECT_FALSE(world.try_submit(2, in_set(1, allreduce("a"))).ok());
}

TEST_P(Protocol, MalformedRequestsAreRefused) {
  Request negative = allreduce("a", {-1});
  Request overflow = allreduce("a", {int64_t{1} << 40, int64_t{1} << 40, 0});
  Request device = allreduce("a");
  device.device = -2;
  Request empty_group = in_group("g", 0, allreduce("a"));
  Request grouped_join = in_group("g", 1, join());
  Request ranks = allreduce("a");
  ranks.ranks = {0};
  Request unsorted = add_set({1, 0});
  for (const Request& request : {negative, overflow, device, empty_group, grouped_join, ranks, unsorted}) {
    Simulation world(2);
    EXPECT_FALSE(world.try_submit(0, request).ok()) << request.name;
  }
}

struct Recorder : NegotiationObserver {
  bool is_watching() const override { return true; }
  void on_first_request(const Request& request) override { events.push_back("first " + request.name); }
  void on_rank_ready(const Request& request, Rank rank) override {
    events.push_back(fmt::format("{} rank {}", request.name, index_of(rank)));
  }
  void on_agreed(const Request& request) override { events.push_back("agreed " + request.name); }
  std::vector<std::string> events;
};

TEST(Observer, SeesTheStartEveryRankAndTheEnd) {
  Recorder recorder;
  Simulation world(2, {}, &recorder);
  world.submit(1, allreduce("a"));
  world.submit(0, allreduce("a"));
  EXPECT_EQ(recorder.events, (std::vector<std::string>{"first a", "a rank 1", "a rank 0", "agreed a"}));
}

TEST(Observer, SeesFailuresAsTheEnd) {
  Recorder recorder;
  Simulation world(2, {}, &recorder);
  world.submit(1, allreduce("a"));
  world.submit(0, of_kind(Kind::allgather, "a"));
  EXPECT_EQ(recorder.events.back(), "agreed a");
}

}  // namespace
}  // namespace hvd
