#include "negotiation/plan_cache.h"

#include "negotiation/simulation.h"

namespace hvd {
namespace {

CoordinatorSettings with_capacity(size_t capacity) {
  CoordinatorSettings settings;
  settings.cache_capacity = capacity;
  return settings;
}

bool travels_as_number(Simulation& world, const Request& request) {
  world.submit_all(request);
  bool small = world.last_up_bytes <= 4;
  EXPECT_EQ(world.plans().size(), 1u);
  return small;
}

class Cache : public InEveryTree {};
INSTANTIATE_TEST_SUITE_P(Trees, Cache, testing::ValuesIn(all_shapes()), name_of_shape);

TEST_P(Cache, AgreedRequestTravelsAsANumberBothWays) {
  Simulation world(2);
  EXPECT_FALSE(travels_as_number(world, allreduce("a")));
  EXPECT_GT(world.last_down_bytes, 20u);
  EXPECT_TRUE(travels_as_number(world, allreduce("a")));
  EXPECT_LE(world.last_down_bytes, 6u);
}

TEST_P(Cache, PlanByNumberCarriesTheSameRequest) {
  Simulation world(2);
  Plan first = world.run(allreduce("a", {5}));
  Plan second = world.run(allreduce("a", {5}));
  EXPECT_EQ(first.tensors[0], second.tensors[0]) << "shared, not copied";
}

TEST_P(Cache, ChangedSignatureTravelsInFullAndReplacesTheEntry) {
  Simulation world(2, with_capacity(1));
  for (int i = 0; i < 3; i++) {
    EXPECT_FALSE(travels_as_number(world, allreduce("a", {1})));
    EXPECT_TRUE(travels_as_number(world, allreduce("a", {1})));
    EXPECT_FALSE(travels_as_number(world, allreduce("a", {2})));
    EXPECT_TRUE(travels_as_number(world, allreduce("a", {2})));
  }
}

TEST_P(Cache, RowsMayChangeWhereRanksExchangeThem) {
  Simulation world(2);
  EXPECT_FALSE(travels_as_number(world, of_kind(Kind::allgather, "a", {1, 3})));
  EXPECT_TRUE(travels_as_number(world, of_kind(Kind::allgather, "a", {8, 3})));
  EXPECT_FALSE(travels_as_number(world, of_kind(Kind::allgather, "a", {8, 4})));
}

TEST_P(Cache, NumberAndFullRequestOfOneNameMeet) {
  Simulation world(2);
  world.run(allreduce("a", {1}));
  world.submit(0, allreduce("a", {1}));
  world.submit(1, allreduce("a", {2}));
  EXPECT_EQ(world.plans().at(0).error_text, "mismatched shapes for tensor a: rank 0 sent [1], rank 1 sent [2]");
}

TEST_P(Cache, LeastRecentlyUsedIsEvicted) {
  Simulation world(2, with_capacity(2));
  world.run(allreduce("a"));
  world.run(allreduce("b"));
  world.run(allreduce("a"));
  world.run(allreduce("c"));
  EXPECT_TRUE(travels_as_number(world, allreduce("a")));
  EXPECT_TRUE(travels_as_number(world, allreduce("c")));
  EXPECT_FALSE(travels_as_number(world, allreduce("b")));
}

TEST_P(Cache, PendingNamesAreNotEvicted) {
  Simulation world(2, with_capacity(1));
  world.run(allreduce("a"));
  world.submit(0, allreduce("a"));
  world.run(allreduce("b"));
  world.submit(1, allreduce("a"));
  EXPECT_LE(world.last_up_bytes, 4u);
  EXPECT_EQ(names_of(world.plans()), (Names{{"a"}}));
  EXPECT_FALSE(travels_as_number(world, allreduce("b"))) << "there was no room for it";
}

TEST_P(Cache, NumberUnderWayWhileItIsEvictedIsUnderstood) {
  Simulation world(3, with_capacity(1));
  int32_t set = world.run(add_set({0, 1})).result;
  world.run(allreduce("a"));
  // Rank 2 announces a by its number; before the root sees that, the others make room for b.
  world.ranks[2]->announce(allreduce("a"));
  world.submit(0, in_set(set, allreduce("b")));
  world.submit(1, in_set(set, allreduce("b")));
  EXPECT_EQ(names_of(world.plans()), (Names{{"b"}}));
  ASSERT_TRUE(world.flush(2).ok());
  world.submit(0, allreduce("a"));
  EXPECT_GT(world.last_up_bytes, 20u) << "rank 0 knows of the eviction";
  world.submit(1, allreduce("a"));
  EXPECT_EQ(names_of(world.plans()), (Names{{"a"}}));
  EXPECT_TRUE(travels_as_number(world, allreduce("a")));
}

TEST_P(Cache, NoCacheMeansEverythingInFull) {
  Simulation world(2, with_capacity(0));
  for (int i = 0; i < 3; i++) EXPECT_FALSE(travels_as_number(world, allreduce("a")));
}

TEST_P(Cache, TuningSwitchesItOffAndOn) {
  Simulation world(2);
  world.run(allreduce("a"));
  world.submit(0, allreduce("a"));  // a number, under way when the cache is switched off
  Tuning tuning;
  tuning.cache_enabled = false;
  world.root.tune(tuning);
  world.decide();
  world.submit(1, allreduce("a"));
  EXPECT_GT(world.last_up_bytes, 20u);
  EXPECT_EQ(names_of(world.plans()), (Names{{"a"}}));
  EXPECT_GT(world.last_down_bytes, 20u);
  EXPECT_FALSE(travels_as_number(world, allreduce("b")));
  EXPECT_FALSE(travels_as_number(world, allreduce("b")));
  world.root.tune(Tuning{});
  world.decide();
  EXPECT_TRUE(travels_as_number(world, allreduce("a")));
}

TEST_P(Cache, ProcessSetChangesAndJoinsAreNotCached) {
  Simulation world(2, with_capacity(1));
  world.run(allreduce("a"));
  int32_t set = world.run(add_set({0})).result;
  world.run(remove_set(set));
  world.run(join());
  EXPECT_TRUE(travels_as_number(world, allreduce("a")));
}

TEST_P(Cache, RemovedProcessSetTakesItsEntriesAlong) {
  Simulation world(2);
  int32_t set = world.run(add_set({0})).result;
  world.submit(0, in_set(set, allreduce("a")));
  world.plans();
  world.run(remove_set(set));
  ASSERT_EQ(world.run(add_set({0})).result, set);
  world.submit(0, in_set(set, allreduce("a")));
  EXPECT_GT(world.last_up_bytes, 20u);
}

TEST_P(Cache, EachRankMayUseItsOwnAccelerator) {
  Simulation world(2);
  auto submit = [&](Device first, Device second) {
    Request request = allreduce("a");
    request.device = first;
    world.submit(0, request);
    request.device = second;
    world.submit(1, request);
    size_t bytes = world.last_up_bytes;
    EXPECT_EQ(names_of(world.plans()), (Names{{"a"}}));
    return bytes;
  };
  EXPECT_GT(submit(0, 1), 20u);
  EXPECT_LE(submit(0, 1), 4u);
  EXPECT_GT(submit(0, 2), 20u) << "the tensor moved";
  EXPECT_LE(submit(0, 2), 4u);
}

TEST_P(Cache, IdleRankAcknowledgesEvictionsSoThatTheyCanBeForgotten) {
  Simulation world(2, with_capacity(1));
  int32_t set = world.run(add_set({0})).result;
  ASSERT_TRUE(world.flush(1).ok());
  for (int i = 0; i < 100; i++) {
    world.submit(0, in_set(set, allreduce(fmt::format("a{}", i))));
    world.plans();
  }
  EXPECT_FALSE(world.ranks[1]->outgoing().empty());
  EXPECT_TRUE(world.flush(1).ok());
}

TEST(PlanCache, EvictedPlanIsReadableUntilAllRanksKnow) {
  Subtrees tree = Subtrees::of_single_ranks(2);
  RequestTable table(tree);
  PlanCache cache(1, table);
  std::vector<CacheId> evicted;
  auto request = std::make_shared<const Request>(allreduce("a"));
  Entry& a = table.find_or_add({kWorldSet, "a"});
  Entry& b = table.find_or_add({kWorldSet, "b"});
  CacheId first = cache.add(a, request, {}, 1, evicted)->id;
  EXPECT_TRUE(evicted.empty());
  CacheId second = cache.add(b, request, {}, 2, evicted)->id;
  EXPECT_EQ(evicted, std::vector<CacheId>{first});
  EXPECT_GT(second, first);
  ASSERT_NE(cache.find(first), nullptr);
  EXPECT_EQ(cache.find(first)->request, request);
  EXPECT_EQ(cache.awaits(), 2u);
  cache.forget_evicted(1);
  EXPECT_NE(cache.find(first), nullptr);
  cache.forget_evicted(2);
  EXPECT_EQ(cache.find(first), nullptr);
  EXPECT_EQ(table.find({kWorldSet, "a"}), nullptr) << "nothing refers to the name any more";
  EXPECT_NE(table.find({kWorldSet, "b"}), nullptr);
}

}  // namespace
}  // namespace hvd
