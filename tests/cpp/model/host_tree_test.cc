#include "model/host_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using testing::ElementsAre;

TEST(HostTree, SubtreesAreRunsOfHostsOfEvenSize) {
  HostPlace root = place_of_host(0, 8, 3);
  EXPECT_EQ(root.parent, -1);
  EXPECT_THAT(root.children, ElementsAre(1, 4, 6));
  EXPECT_EQ(root.end, 8);
  HostPlace first = place_of_host(1, 8, 3);
  EXPECT_EQ(first.parent, 0);
  EXPECT_THAT(first.children, ElementsAre(2, 3));
  EXPECT_EQ(first.end, 4);
  EXPECT_EQ(first.depth, 1);
  EXPECT_EQ(place_of_host(7, 8, 3).parent, 6);
}

TEST(HostTree, ParentsAndChildrenAgreeInEveryTree) {
  for (int32_t fan_out : {1, 2, 3, 16}) {
    for (int32_t hosts = 1; hosts <= 70; hosts++) {
      int32_t reached = 1;
      for (int32_t host = 0; host < hosts; host++) {
        HostPlace place = place_of_host(host, hosts, fan_out);
        EXPECT_LE(place.children.size(), static_cast<size_t>(fan_out));
        for (size_t i = 0; i < place.children.size(); i++) {
          HostPlace child = place_of_host(place.children[i], hosts, fan_out);
          EXPECT_EQ(child.parent, host);
          EXPECT_EQ(child.depth, place.depth + 1);
          EXPECT_EQ(child.end, i + 1 < place.children.size() ? place.children[i + 1] : place.end);
          reached++;
        }
      }
      EXPECT_EQ(reached, hosts) << "every host but the root is the child of one";
    }
  }
}

TEST(HostTree, IsAsLowAsTheFanOutAllows) {
  auto depth = [](int32_t hosts, int32_t fan_out) {
    int32_t deepest = 0;
    for (int32_t host = 0; host < hosts; host++) {
      deepest = std::max(deepest, place_of_host(host, hosts, fan_out).depth);
    }
    return deepest;
  };
  EXPECT_EQ(depth(1, 16), 0);
  EXPECT_EQ(depth(17, 16), 1);
  EXPECT_EQ(depth(18, 16), 2);
  EXPECT_EQ(depth(1 + 16 + 256, 16), 2);
  EXPECT_EQ(depth(1250, 16), 3);
  EXPECT_EQ(depth(15, 2), 3);
  EXPECT_EQ(depth(5, 1), 4);
}

TEST(HostTree, ANodeHasItsOwnRanksAndTheSubtreesOfItsChildren) {
  std::vector<std::vector<int32_t>> ranks{{0, 3}, {1}, {2, 5}, {4}};
  using Below = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(ranks_below(0, ranks, 2), (Below{{0}, {3}, {1, 2, 5}, {4}}));
  EXPECT_EQ(ranks_below(1, ranks, 2), (Below{{1}, {2, 5}}));
  EXPECT_EQ(ranks_below(3, ranks, 2), (Below{{4}}));
}

}  // namespace
}  // namespace hvd
