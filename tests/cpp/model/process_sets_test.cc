#include "model/process_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using testing::ElementsAre;

TEST(ProcessSets, TheWorldIsSetZero) {
  ProcessSets sets(3);
  EXPECT_THAT(sets.ids(), ElementsAre(kWorldSet));
  EXPECT_THAT(*sets.ranks(kWorldSet), ElementsAre(0, 1, 2));
  EXPECT_EQ(sets.find({0, 1, 2}), kWorldSet);
  EXPECT_EQ(sets.ranks(1), nullptr);
}

TEST(ProcessSets, PositionsCountOnlyMembers) {
  ProcessSets sets(8);
  int32_t id = sets.add({1, 4, 6});
  EXPECT_EQ(sets.position(id, Rank{1}), 0);
  EXPECT_EQ(sets.position(id, Rank{4}), 1);
  EXPECT_EQ(sets.position(id, Rank{6}), 2);
  for (int32_t stranger : {-1, 0, 2, 5, 7, 8}) EXPECT_FALSE(sets.contains(id, Rank{stranger})) << stranger;
  EXPECT_TRUE(sets.contains(kWorldSet, Rank{7}));
  EXPECT_FALSE(sets.contains(id + 1, Rank{1}));
}

TEST(ProcessSets, AreFoundByTheirRanks) {
  ProcessSets sets(4);
  int32_t pair = sets.add({0, 2});
  int32_t single = sets.add({3});
  EXPECT_EQ(sets.find({0, 2}), pair);
  EXPECT_EQ(sets.find({3}), single);
  EXPECT_EQ(sets.find({0}), std::nullopt);
  sets.remove(pair);
  EXPECT_EQ(sets.find({0, 2}), std::nullopt);
}

TEST(ProcessSets, IdsOfRemovedSetsAreUsedAgainFirstRemovedFirst) {
  ProcessSets sets(4);
  EXPECT_EQ(sets.add({0}), 1);
  EXPECT_EQ(sets.add({1}), 2);
  EXPECT_EQ(sets.add({2}), 3);
  sets.remove(2);
  sets.remove(1);
  EXPECT_THAT(sets.ids(), ElementsAre(0, 3));
  EXPECT_EQ(sets.ranks(1), nullptr);
  EXPECT_EQ(sets.add({0, 1}), 2);
  EXPECT_EQ(sets.add({0, 2}), 1);
  EXPECT_EQ(sets.add({0, 3}), 4);
  EXPECT_THAT(sets.ids(), ElementsAre(0, 1, 2, 3, 4));
}

TEST(ProcessSets, ASerialNumberIsNeverUsedAgain) {
  ProcessSets sets(3);
  EXPECT_EQ(sets.serial(kWorldSet), 0u);
  EXPECT_EQ(sets.serial(1), 0u);
  ASSERT_EQ(sets.add({0, 1}), 1);
  uint64_t first = sets.serial(1);
  EXPECT_NE(first, 0u);
  sets.remove(1);
  EXPECT_EQ(sets.serial(1), 0u);
  ASSERT_EQ(sets.add({0, 1}), 1);
  EXPECT_NE(sets.serial(1), first);
}

}  // namespace
}  // namespace hvd
