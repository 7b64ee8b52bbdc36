#include "elastic/placement.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/joined.h"

namespace hvd::elastic {
namespace {

using Members = std::vector<Worker>;

Worker newcomer(uint64_t id, std::string host) { return {.id = WorkerId{id}, .host = std::move(host)}; }
Worker survivor(uint64_t id, std::string host, int rank, uint64_t generation = 1) {
  return {.id = WorkerId{id}, .host = std::move(host), .generation = Generation{generation}, .rank = rank};
}

AssignGeneration placed(const Members& members, const std::vector<HostSlots>& order) {
  std::vector<const Worker*> pointers;
  for (const Worker& worker : members) pointers.push_back(&worker);
  return place(pointers, order);
}

std::string ids_of(const AssignGeneration& table) {
  std::string text;
  for (const Place& each : table.places) text += fmt::format("{} ", static_cast<uint64_t>(each.id));
  return text;
}

TEST(Placement, FirstGenerationFollowsTheOrderOfTheHosts) {
  auto table = placed({newcomer(1, "b"), newcomer(2, "a"), newcomer(3, "b")}, {{"b", 2}, {"a", 2}});
  EXPECT_EQ(ids_of(table), "1 3 2 ");
  EXPECT_EQ(table.hosts, (std::vector<HostSlots>{{"b", 2}, {"a", 1}}));
}

TEST(Placement, NumbersRanksLocallyAndAcross) {
  auto table = placed({newcomer(1, "a"), newcomer(2, "b"), newcomer(3, "b"), newcomer(4, "c"), newcomer(5, "c")},
                      {{"a", 1}, {"b", 2}, {"c", 2}});
  auto place_of = [&](size_t rank) {
    const Place& each = table.places[rank];
    return fmt::format("{}/{} {}/{} {}/{}", each.rank, each.size, each.local_rank, each.local_size, each.cross_rank,
                       each.cross_size);
  };
  EXPECT_EQ(place_of(0), "0/5 0/1 0/3");
  EXPECT_EQ(place_of(1), "1/5 0/2 1/3");
  EXPECT_EQ(place_of(2), "2/5 1/2 0/2");
  EXPECT_EQ(place_of(3), "3/5 0/2 2/3");
  EXPECT_EQ(place_of(4), "4/5 1/2 1/2");
}

TEST(Placement, SurvivorsKeepTheirOrderWhateverTheListSays) {
  auto table = placed({survivor(1, "a", 1), survivor(2, "b", 2), survivor(3, "c", 0), newcomer(4, "z")},
                      {{"z", 1}, {"b", 1}, {"a", 1}, {"c", 1}});
  EXPECT_EQ(ids_of(table), "3 1 2 4 ");
}

TEST(Placement, AReplacementComesBehindTheSurvivorsOfItsHost) {
  auto table = placed({survivor(2, "a", 1), survivor(3, "b", 2), newcomer(5, "a")}, {{"a", 2}, {"b", 1}});
  EXPECT_EQ(ids_of(table), "2 5 3 ") << "the ranks of a host follow each other";
}

TEST(Placement, ALateWorkerCountsAsANewcomer) {
  auto table = placed({survivor(1, "a", 0, 1), survivor(2, "b", 0, 2)}, {{"a", 1}, {"b", 1}});
  EXPECT_EQ(ids_of(table), "2 1 ");
}

TEST(Placement, AHostThatIsNotListedComesBehindOthersWithoutSurvivors) {
  auto table = placed({newcomer(1, "x"), newcomer(2, "a")}, {{"a", 1}});
  EXPECT_EQ(ids_of(table), "2 1 ");
}

}  // namespace
}  // namespace hvd::elastic
