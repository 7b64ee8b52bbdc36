// Where the ranks of a process set sit.
#include "collectives/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace hvd {
namespace {

using testing::ElementsAre;

constexpr int32_t kHostOf[] = {0, 0, 1, 1, 1, 2};

TEST(Placement, HostsComeInTheOrderOfTheirFirstMember) {
  constexpr int32_t kRanks[] = {4, 1, 0, 2};
  Placement placement = place(kRanks, kHostOf, 2);
  EXPECT_THAT(placement.hosts, ElementsAre(ElementsAre(0, 3), ElementsAre(1, 2)));
  EXPECT_EQ(placement.position, 3);
  EXPECT_EQ(placement.seat.host, 0u);
  EXPECT_EQ(placement.seat.place, 1u);
  EXPECT_EQ(placement.rank_at(1, 1), 0);
}

TEST(Placement, TheSmallestHostSaysHowManyLanesThereAre) {
  constexpr int32_t kRanks[] = {0, 1, 2, 3, 4};
  Placement placement = place(kRanks, kHostOf, 0);
  EXPECT_EQ(placement.lanes, 2u);
  EXPECT_THAT(placement.lane(1), ElementsAre(1, 3));
}

TEST(Placement, AlternatingOrderKeepsTheRanksOfAHostApart) {
  std::vector<std::vector<int32_t>> worlds = {{1, 1}, {2, 2}, {1, 2, 3}, {2, 2, 1}, {3, 3, 3}, {1, 4, 4}, {5, 3, 2}};
  for (const std::vector<int32_t>& world : worlds) {
    std::vector<int32_t> host_of, ranks;
    for (size_t host = 0; host < world.size(); host++) {
      for (int32_t i = 0; i < world[host]; i++) {
        ranks.push_back(static_cast<int32_t>(host_of.size()));
        host_of.push_back(static_cast<int32_t>(host));
      }
    }
    auto order = alternating_order(place(ranks, host_of, 0));
    ASSERT_TRUE(order.has_value());
    for (size_t i = 0; i < order->size(); i++) {
      size_t rank = static_cast<size_t>((*order)[i]), next = static_cast<size_t>((*order)[(i + 1) % order->size()]);
      EXPECT_NE(host_of[rank], host_of[next]) << testing::PrintToString(*order);
    }
    std::sort(order->begin(), order->end());
    EXPECT_EQ(*order, ranks);
  }
}

TEST(Placement, ThereIsNoAlternatingOrderIfAHostHasMoreThanHalf) {
  constexpr int32_t kRanks[] = {0, 2, 3, 4, 5};
  EXPECT_FALSE(alternating_order(place(kRanks, kHostOf, 0)).has_value());
}

}  // namespace
}  // namespace hvd
