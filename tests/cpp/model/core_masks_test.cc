#include "model/core_masks.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>

namespace hvd {
namespace {

bool crowded(const std::vector<std::vector<int>>& cores) {
  std::vector<CoreMask> masks;
  for (const std::vector<int>& of_rank : cores) masks.push_back(mask_of(of_rank));
  return must_share_cores(masks);
}

TEST(CoreMasks, RanksThatMayUseAllCoresAreCrowdedWhenTheyAreMore) {
  EXPECT_FALSE(crowded({{0, 1}}));
  EXPECT_FALSE(crowded({{0, 1}, {0, 1}}));
  EXPECT_TRUE(crowded({{0, 1}, {0, 1}, {0, 1}}));
}

TEST(CoreMasks, RanksWithCoresOfTheirOwnAreNot) {
  EXPECT_FALSE(crowded({{0}, {1}, {2}, {300}}));
  EXPECT_FALSE(crowded({{4, 5}, {0, 1}, {2, 3}}));
}

TEST(CoreMasks, RanksThatShareTheirOnlyCoreAre) {
  EXPECT_TRUE(crowded({{3}, {3}}));
  EXPECT_TRUE(crowded({{3}, {0, 1, 2, 3, 4, 5, 6, 7}, {3}}));  // although there are cores enough for all three
}

TEST(CoreMasks, WhoHasAChoiceMakesRoomForWhoHasNone) {
  EXPECT_FALSE(crowded({{0, 1}, {0}}));
  EXPECT_FALSE(crowded({{0, 1, 2}, {0, 1}, {0}}));
  EXPECT_FALSE(crowded({{0, 1}, {1, 2}, {2, 3}, {3, 0}}));
  EXPECT_TRUE(crowded({{0, 1}, {0, 1, 2}, {0, 1}, {0, 1}}));
}

// Hall's condition, looked at directly: some ranks together have fewer cores than they are.
bool have_too_few(const std::vector<CoreMask>& masks) {
  for (uint32_t group = 1; group < 1u << masks.size(); group++) {
    uint64_t cores = 0;
    for (size_t rank = 0; rank < masks.size(); rank++) {
      if (group >> rank & 1) cores |= masks[rank].empty() ? 0 : masks[rank][0];
    }
    if (std::popcount(cores) < std::popcount(group)) return true;
  }
  return false;
}

TEST(CoreMasks, ItIsSoForAnyMasks) {
  std::mt19937 random(7);
  int with = 0;
  for (int i = 0; i < 5'000; i++) {
    std::vector<CoreMask> masks(1 + random() % 7);
    for (CoreMask& mask : masks) mask = {(random() & random()) % 256};
    EXPECT_EQ(must_share_cores(masks), have_too_few(masks)) << i;
    with += have_too_few(masks) ? 1 : 0;
  }
  EXPECT_GT(with, 500);
  EXPECT_LT(with, 4'500);
}

TEST(CoreMasks, ThisProcessHasCores) { EXPECT_FALSE(must_share_cores({own_cores()})); }

}  // namespace
}  // namespace hvd
