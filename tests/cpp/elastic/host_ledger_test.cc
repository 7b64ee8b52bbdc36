#include "elastic/host_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace hvd::elastic {
namespace {

using testing::AllOf;
using testing::Ge;
using testing::Le;

const TimePoint kStart{seconds(1000)};

TEST(HostLedger, KeepsTheOrderInWhichHostsCame) {
  HostLedger ledger({}, 0);
  EXPECT_EQ(ledger.list({{"b", 1}, {"a", 2}}), "added b:1, added a:2");
  EXPECT_EQ(ledger.list({{"a", 2}, {"b", 1}}), "") << "another order is no change";
  EXPECT_EQ(ledger.list({{"c", 1}, {"a", 3}, {"b", 1}}), "slots of a 2 -> 3, added c:1");
  EXPECT_EQ(ledger.hosts(), (std::vector<HostSlots>{{"b", 1}, {"a", 3}, {"c", 1}}));
  EXPECT_EQ(ledger.count_slots(), 5);
  EXPECT_EQ(ledger.list({{"a", 3}, {"c", 0}}), "removed b, removed c");
  EXPECT_EQ(ledger.list({{"b", 1}, {"a", 3}}), "added b:1");
  EXPECT_EQ(ledger.hosts(), (std::vector<HostSlots>{{"a", 3}, {"b", 1}})) << "a host that returns is the youngest";
}

TEST(HostLedger, KnowsSlots) {
  HostLedger ledger({}, 0);
  ledger.list({{"a", 2}, {"a", 7}});
  EXPECT_TRUE(ledger.has("a", 1));
  EXPECT_FALSE(ledger.has("a", 2)) << "a host counts once";
  EXPECT_FALSE(ledger.has("b", 0));
}

TEST(HostLedger, RestsGrowWithinTheRange) {
  HostLedger ledger({seconds(10), seconds(100)}, 7);
  TimePoint now = kStart;
  for (double expected : {10.0, 20.0, 40.0, 80.0, 100.0, 100.0}) {
    double rest = seconds_of(ledger.failed("a", now));
    EXPECT_THAT(rest, AllOf(Ge(std::min(expected, 100.0)), Le(std::min(expected + 10, 100.0))));
    EXPECT_EQ(ledger.rests_until("a"), now + seconds(rest));
    now = ledger.rests_until("a");
  }
  EXPECT_LE(ledger.rests_until("b"), kStart) << "another host is another matter";
}

TEST(HostLedger, FailuresDuringARestAreOneIncident) {
  HostLedger ledger({seconds(10), seconds(100)}, 7);
  Duration rest = ledger.failed("a", kStart);
  EXPECT_EQ(ledger.failed("a", kStart), rest);
  EXPECT_EQ(ledger.failed("a", kStart + rest - seconds(1)), seconds(10)) << "not at once, though";
  EXPECT_LE(ledger.failed("a", kStart + rest + seconds(9)), seconds(30)) << "the second incident";
}

TEST(HostLedger, ALongTimeWithoutFailureIsForgiveness) {
  HostLedger ledger({seconds(10), seconds(100)}, 7);
  Duration first = ledger.failed("a", kStart);
  ledger.failed("a", kStart + first);
  EXPECT_EQ(ledger.failed("a", ledger.rests_until("a") + seconds(100)), first);
}

TEST(HostLedger, RemembersHostsThatComeAndGo) {
  HostLedger ledger({seconds(10), seconds(100)}, 7);
  ledger.list({{"a", 1}});
  ledger.failed("a", kStart);
  ledger.list({});
  ledger.list({{"a", 1}});
  EXPECT_GT(ledger.rests_until("a"), kStart);
}

TEST(HostLedger, ChanceIsDifferentPerHostAndSeedAndOtherwiseTheSame) {
  auto rest = [](uint64_t seed, const std::string& host) {
    return seconds_of(HostLedger({seconds(10), seconds(100)}, seed).failed(host, kStart));
  };
  EXPECT_EQ(rest(1, "a"), rest(1, "a"));
  std::set<double> rests;
  for (uint64_t seed = 0; seed < 50; seed++) rests.insert({rest(seed, "a"), rest(seed, "b")});
  EXPECT_EQ(rests.size(), 100u);
  EXPECT_LT(*rests.begin(), 12) << "spread over the range";
  EXPECT_GT(*rests.rbegin(), 18);
}

TEST(HostLedger, ARestWithoutAFailureOnlyLengthens) {
  HostLedger ledger({}, 0);
  ledger.rest("a", kStart, seconds(60));
  ledger.rest("a", kStart, seconds(30));
  EXPECT_EQ(ledger.rests_until("a"), kStart + seconds(60));
}

TEST(HostLedger, NamesThatNeverComeBackAreForgotten) {
  HostLedger ledger({seconds(1), seconds(100)}, 7);
  TimePoint now = kStart;
  for (int i = 0; i < 1000; i++, now += seconds(5)) {
    if (i % 2 == 0) ledger.failed("spot-" + std::to_string(i), now);
    if (i % 2 == 1) ledger.rest("spot-" + std::to_string(i), now, seconds(60));
  }
  EXPECT_LT(ledger.count_records(), 40u);
  EXPECT_GT(ledger.rests_until("spot-999"), now);
}

}  // namespace
}  // namespace hvd::elastic
