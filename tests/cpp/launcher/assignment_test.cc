#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "launcher/hosts/hosts.h"

namespace hvd::launcher {
namespace {

using Place = std::array<int, 4>;  // local rank, local size, cross rank, cross size

std::vector<Place> places(const std::vector<Slot>& slots) {
  std::vector<Place> result;
  for (const Slot& slot : slots) result.push_back({slot.local_rank, slot.local_size, slot.cross_rank, slot.cross_size});
  return result;
}

TEST(Assignment, HostsAreFilledInTheirOrder) {
  auto slots = assign({{"a", 2}, {"b", 1}}, 3);
  ASSERT_TRUE(slots.ok()) << slots.status().message();
  EXPECT_EQ(places(*slots), (std::vector<Place>{{0, 2, 0, 2}, {1, 2, 0, 1}, {0, 1, 1, 2}}));
  for (int rank = 0; rank < 3; rank++) {
    const Slot& slot = (*slots)[static_cast<size_t>(rank)];
    EXPECT_EQ(slot.host, rank < 2 ? "a" : "b");
    EXPECT_EQ(slot.rank, rank);
    EXPECT_EQ(slot.size, 3);
  }
}

TEST(Assignment, SlotsThatAreLeftOverCountForNothing) {
  auto slots = assign({{"a", 2}, {"b", 4}, {"c", 4}}, 3);
  ASSERT_TRUE(slots.ok()) << slots.status().message();
  EXPECT_EQ(places(*slots), (std::vector<Place>{{0, 2, 0, 2}, {1, 2, 0, 1}, {0, 1, 1, 2}}));
}

TEST(Assignment, TooFewSlotsAreAnError) {
  auto slots = assign({{"a", 2}, {"b", 1}}, 4);
  ASSERT_FALSE(slots.ok());
  EXPECT_EQ(slots.status().code(), Code::invalid_argument);
}

TEST(Hosts, AHostNamedTwiceHasTheSumOfItsSlots) {
  auto hosts = parse_hosts("a:2,b:1,a:3");
  ASSERT_TRUE(hosts.ok()) << hosts.status().message();
  EXPECT_EQ(*hosts, (std::vector<Host>{{"a", 5}, {"b", 1}}));
}

TEST(Hosts, ThisMachineIsOneHostUnderTheNameGivenFirst) {
  auto hosts = parse_hosts("127.0.0.1:2,a:1,localhost:3");
  ASSERT_TRUE(hosts.ok()) << hosts.status().message();
  EXPECT_EQ(*hosts, (std::vector<Host>{{"127.0.0.1", 5}, {"a", 1}}));
}

}  // namespace
}  // namespace hvd::launcher
