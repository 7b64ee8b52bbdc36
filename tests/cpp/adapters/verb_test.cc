#include "adapters/tensorflow/verb.h"

#include <gtest/gtest.h>

#include <set>

namespace hvd::tensorflow {
namespace {

TEST(WireNameTest, MembersOfAGroupAreCounted) {
  Node node{.verb = kAllreduce, .name = "scope/node"};
  EXPECT_EQ(node.wire_name(0, 1, 0), "scope/node");
  node.verb = kGroupedAllgather;
  EXPECT_EQ(node.wire_name(1, 3, 0), "scope/node_2of3");
}

TEST(WireNameTest, VariablesKeepTheirNames) {
  Node node{.verb = kBroadcastInplace, .name = "node", .member_names = {"kernel_0", "bias_0"}};
  EXPECT_EQ(node.wire_name(1, 2, 0), "node_bias_0");
}

TEST(WireNameTest, IterationsThatRunAtTheSameTimeDiffer) {
  Node node{.verb = kAllreduce, .name = "node"};
  std::set<std::string> names;
  for (int64_t iteration = 5; iteration < 15; iteration++) names.insert(node.wire_name(0, 1, iteration));
  EXPECT_EQ(names.size(), 10u);
  for (int64_t iteration = 0; iteration < 1000; iteration++) names.insert(node.wire_name(0, 1, iteration));
  EXPECT_EQ(names.size(), 10u);
}

}  // namespace
}  // namespace hvd::tensorflow
