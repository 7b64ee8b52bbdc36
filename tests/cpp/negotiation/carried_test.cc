// Two ranks whose small allreduces ride with their announcements; time and delivery are in the test's hands.
#include "negotiation/carried.h"

#include "negotiation/messages.h"
#include "negotiation/simulation.h"

namespace hvd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// What a rank heard: names, and the first byte of the other's data.
struct Ear final : CarriedListener {
  void on_carried(const Request& request, ByteView theirs) override {
    heard.push_back(fmt::format("{}={}", request.name, static_cast<int>(theirs.front())));
  }
  std::vector<std::string> heard;
};

class Pair {
 public:
  explicit Pair(CoordinatorSettings settings = {}, NegotiationObserver* observer = nullptr)
      : root(2, with_ear(std::move(settings)), observer), ranks{Negotiator(2), Negotiator(2, &ears[1])} {}

  // The rank announces, and the root gets the message. Value 0: it carries nothing.
  Status submit(int32_t rank, const Request& request, int value) {
    Bytes data(value == 0 ? 0 : bytes_of(request), static_cast<std::byte>(value));
    Negotiator& negotiator = ranks[static_cast<size_t>(rank)];
    negotiator.announce(request, data);
    Status status = root.receive(Rank{rank}, negotiator.outgoing(), now);
    negotiator.clear_outgoing();
    negotiator.finish_offered();
    return status;
  }
  // The names in the plans of the root's next message, which both ranks read; an error is one, too.
  std::vector<std::string> decide() {
    Bytes message;
    bool has_message = root.decide(now, message);
    root.finish_offered(now);
    last_down_bytes = message.size();
    std::vector<Decision> decisions;
    for (Negotiator& rank : ranks) {
      decisions.clear();
      EXPECT_TRUE(!has_message || rank.receive(message, decisions).ok());
    }
    std::vector<std::string> names;
    for (const Decision& decision : decisions) {
      const Plan* plan = std::get_if<Plan>(&decision);
      if (plan != nullptr) names.push_back(plan->first().name + (plan->error == Code::ok ? "" : " failed"));
      if (const auto* report = std::get_if<StallReport>(&decision)) reports.push_back(report->text);
    }
    return names;
  }
  // Both ranks learn the ids of the names.
  void learn(const Request& request) {
    ASSERT_TRUE(submit(0, request, 0).ok() && submit(1, request, 0).ok());
    EXPECT_THAT(decide(), ElementsAre(request.name));
  }
  void expect_heard(const std::vector<std::string>& first, const std::vector<std::string>& second) {
    EXPECT_EQ(std::exchange(ears[0].heard, {}), first);
    EXPECT_EQ(std::exchange(ears[1].heard, {}), second);
  }

  CoordinatorSettings with_ear(CoordinatorSettings settings) {
    settings.carried = &ears[0];
    return settings;
  }

  TimePoint now = TimePoint{} + std::chrono::hours(1);
  Ear ears[2];
  Coordinator root;
  Negotiator ranks[2];
  std::vector<std::string> reports;
  size_t last_down_bytes = 0;
};

TEST(Carried, RootFirst) {
  Pair pair;
  pair.learn(allreduce("a"));
  for (int i = 1; i < 4; i++) {
    EXPECT_TRUE(pair.submit(0, allreduce("a"), i).ok());
    EXPECT_THAT(pair.decide(), IsEmpty());
    EXPECT_GT(pair.last_down_bytes, bytes_of(allreduce("a"))) << "the offer waits for nothing";
    pair.expect_heard({}, {});
    EXPECT_TRUE(pair.submit(1, allreduce("a"), 10 + i).ok());
    pair.expect_heard({fmt::format("a={}", 10 + i)}, {fmt::format("a={}", i)});
    EXPECT_THAT(pair.decide(), IsEmpty());
    EXPECT_EQ(pair.last_down_bytes, 0u) << "there is nothing to add";
  }
}

TEST(Carried, OtherFirst) {
  Pair pair;
  pair.learn(allreduce("a"));
  for (int i = 1; i < 4; i++) {
    EXPECT_TRUE(pair.submit(1, allreduce("a"), 10 + i).ok());
    EXPECT_THAT(pair.decide(), IsEmpty());
    EXPECT_TRUE(pair.submit(0, allreduce("a"), i).ok());
    pair.expect_heard({}, {});
    EXPECT_THAT(pair.decide(), IsEmpty());
    pair.expect_heard({fmt::format("a={}", 10 + i)}, {fmt::format("a={}", i)});
  }
}

TEST(Carried, BothAtOnce) {
  Pair pair;
  pair.learn(allreduce("a"));
  EXPECT_TRUE(pair.submit(0, allreduce("a"), 1).ok());
  EXPECT_TRUE(pair.submit(1, allreduce("a"), 2).ok());  // before it has seen the offer
  pair.expect_heard({"a=2"}, {});
  EXPECT_THAT(pair.decide(), IsEmpty());
  pair.expect_heard({}, {"a=1"});
}

TEST(Carried, NamesMatchInAnyOrder) {
  Pair pair;
  pair.learn(allreduce("a"));
  pair.learn(allreduce("b"));
  EXPECT_TRUE(pair.submit(0, allreduce("a"), 1).ok() && pair.submit(1, allreduce("b"), 2).ok());
  EXPECT_TRUE(pair.submit(0, allreduce("b"), 3).ok() && pair.submit(1, allreduce("a"), 4).ok());
  pair.expect_heard({"a=4"}, {});
  EXPECT_THAT(pair.decide(), IsEmpty());
  pair.expect_heard({"b=2"}, {"a=1", "b=3"});
}

TEST(Carried, WhatIsNotInTheCacheIsPlanned) {
  Pair pair;
  EXPECT_TRUE(pair.submit(0, allreduce("a"), 1).ok() && pair.submit(1, allreduce("a"), 2).ok());
  EXPECT_THAT(pair.decide(), ElementsAre("a"));
  pair.expect_heard({}, {});
}

// Whoever carries it, and whoever comes first: if one does not, there is a plan, and nothing of it is left over.
TEST(Carried, OneThatCarriesAndOneThatDoesNotMeetInAPlan) {
  for (int32_t carrying : {0, 1}) {
    for (int32_t first : {0, 1}) {
      SCOPED_TRACE(fmt::format("rank {} carries, rank {} is first", carrying, first));
      Pair pair;
      pair.learn(allreduce("a"));
      EXPECT_TRUE(pair.submit(first, allreduce("a"), first == carrying ? 1 : 0).ok());
      EXPECT_THAT(pair.decide(), IsEmpty());
      EXPECT_TRUE(pair.submit(1 - first, allreduce("a"), first == carrying ? 0 : 1).ok());
      EXPECT_THAT(pair.decide(), ElementsAre("a"));
      pair.expect_heard({}, {});
      EXPECT_TRUE(pair.submit(1, allreduce("a"), 7).ok() && pair.submit(0, allreduce("a"), 8).ok());
      EXPECT_THAT(pair.decide(), IsEmpty());
      pair.expect_heard({"a=7"}, {"a=8"});
    }
  }
}

TEST(Carried, ARankThatJoinsMakesAPlanOfWhatTheRootOffered) {
  Pair pair;
  pair.learn(allreduce("a"));
  EXPECT_TRUE(pair.submit(0, allreduce("a"), 1).ok());
  EXPECT_THAT(pair.decide(), IsEmpty());
  EXPECT_TRUE(pair.submit(1, join(), 0).ok());
  EXPECT_THAT(pair.decide(), ElementsAre("a"));
  EXPECT_TRUE(pair.submit(0, join(), 0).ok());
  EXPECT_THAT(pair.decide(), ElementsAre("join.noname"));
  EXPECT_TRUE(pair.submit(1, allreduce("a"), 2).ok() && pair.submit(0, allreduce("a"), 3).ok());
  EXPECT_THAT(pair.decide(), IsEmpty());
  pair.expect_heard({"a=2"}, {"a=3"});
}

TEST(Carried, ARankThatCarriesAndThenJoinsIsHeard) {
  Pair pair;
  pair.learn(allreduce("a"));
  pair.learn(allreduce("b"));
  EXPECT_TRUE(pair.submit(1, allreduce("a"), 1).ok() && pair.submit(1, join(), 0).ok());
  EXPECT_TRUE(pair.submit(0, allreduce("a"), 2).ok());
  EXPECT_THAT(pair.decide(), ElementsAre("a")) << "planned, and both have it pending";
  EXPECT_TRUE(pair.submit(0, allreduce("b"), 3).ok());
  EXPECT_THAT(pair.decide(), ElementsAre("b"));
  pair.expect_heard({}, {});
}

// The root learns from one message of its own that both have carried it, and that it joins.
TEST(Carried, TheRootMayJoinInTheSameBreath) {
  Pair pair;
  pair.learn(allreduce("a"));
  EXPECT_TRUE(pair.submit(1, allreduce("a"), 1).ok());
  EXPECT_TRUE(pair.submit(0, allreduce("a"), 2).ok() && pair.submit(0, join(), 0).ok());
  EXPECT_THAT(pair.decide(), IsEmpty());
  pair.expect_heard({"a=1"}, {"a=2"});
  EXPECT_TRUE(pair.submit(1, join(), 0).ok());
  EXPECT_THAT(pair.decide(), ElementsAre("join.noname"));
}

TEST(Carried, AMismatchFailsOnBothAndIsForgotten) {
  Pair pair;
  pair.learn(allreduce("a"));
  EXPECT_TRUE(pair.submit(0, allreduce("a"), 1).ok() && pair.submit(1, allreduce("a", {5}), 2).ok());
  EXPECT_THAT(pair.decide(), ElementsAre("a failed"));
  pair.learn(allreduce("a"));
  EXPECT_TRUE(pair.submit(1, allreduce("a"), 3).ok() && pair.submit(0, allreduce("a"), 4).ok());
  EXPECT_THAT(pair.decide(), IsEmpty());
  pair.expect_heard({"a=3"}, {"a=4"});
}

TEST(Carried, NothingIsPromisedWhereATimeOutCouldBreakIt) {
  CoordinatorSettings settings;
  settings.collective_timeout = std::chrono::seconds(10);
  Pair pair(settings);
  pair.learn(allreduce("a"));
  EXPECT_TRUE(pair.submit(0, allreduce("a"), 1).ok());
  EXPECT_THAT(pair.decide(), IsEmpty());
  EXPECT_EQ(pair.last_down_bytes, 0u);
  EXPECT_TRUE(pair.submit(1, allreduce("a"), 2).ok());
  EXPECT_THAT(pair.decide(), ElementsAre("a"));
  pair.expect_heard({}, {});
}

TEST(Carried, AStallIsReportedAsEver) {
  CoordinatorSettings settings;
  settings.stall_warning = std::chrono::seconds(10);
  settings.rank_names = {"rank 0", "rank 1"};
  Pair pair(settings);
  pair.learn(allreduce("a"));
  EXPECT_TRUE(pair.submit(0, allreduce("a"), 1).ok());
  EXPECT_THAT(pair.decide(), IsEmpty());
  pair.now += std::chrono::seconds(11);
  EXPECT_EQ(pair.root.next_deadline() <= pair.now, true);
  EXPECT_THAT(pair.decide(), IsEmpty());
  ASSERT_EQ(pair.reports.size(), 1u);
  EXPECT_THAT(pair.reports[0], HasSubstr("rank 1"));
  EXPECT_TRUE(pair.submit(1, allreduce("a"), 2).ok());
  pair.expect_heard({"a=2"}, {"a=1"});
  EXPECT_EQ(pair.root.next_deadline(), kNever);
}

TEST(Carried, TheObserverSeesTheWholeNegotiation) {
  struct Observer final : NegotiationObserver {
    bool is_watching() const override { return true; }
    void on_first_request(const Request& request) override { seen.push_back("first " + request.name); }
    void on_rank_ready(const Request&, Rank rank) override { seen.push_back(fmt::format("ready {}", index_of(rank))); }
    void on_agreed(const Request& request) override { seen.push_back("agreed " + request.name); }
    std::vector<std::string> seen;
  };
  Observer observer;
  Pair pair({}, &observer);
  pair.learn(allreduce("a"));
  for (int32_t first : {0, 1}) {
    observer.seen.clear();
    EXPECT_TRUE(pair.submit(first, allreduce("a"), 1).ok() && pair.submit(1 - first, allreduce("a"), 2).ok());
    pair.decide();
    EXPECT_THAT(observer.seen,
                ElementsAre("first a", fmt::format("ready {}", first), fmt::format("ready {}", 1 - first), "agreed a"));
  }
}

TEST(Carried, OnlyPlainAllreducesOfTheWorldAre) {
  EXPECT_TRUE(can_be_carried(allreduce("a")));
  EXPECT_FALSE(can_be_carried(of_kind(Kind::allgather, "a")));
  EXPECT_FALSE(can_be_carried(in_set(1, allreduce("a"))));
  EXPECT_FALSE(can_be_carried(in_group("g", 1, allreduce("a"))));
  Request other = allreduce("a");
  other.prescale = 0.5;
  EXPECT_FALSE(can_be_carried(other));
  other = allreduce("a");
  other.reduce_op = ReduceOp::adasum;
  EXPECT_FALSE(can_be_carried(other));
  other = allreduce("a");
  other.device = 0;
  EXPECT_FALSE(can_be_carried(other));
}

// ---- what no rank sends ----

TEST(Carried, AnotherSizeIsRefused) {
  Pair pair;
  pair.learn(allreduce("a"));
  Bytes message;
  Encoder encoder(message);
  write_carried(encoder, 1, Bytes(3));
  EXPECT_FALSE(pair.root.receive(Rank{1}, message, pair.now).ok());
  EXPECT_FALSE(pair.root.receive(Rank{0}, message, pair.now).ok());
}

TEST(Carried, TheSameTwiceIsRefused) {
  for (int32_t rank : {0, 1}) {
    Pair pair;
    pair.learn(allreduce("a"));
    EXPECT_TRUE(pair.submit(rank, allreduce("a"), 1).ok());
    EXPECT_FALSE(pair.submit(rank, allreduce("a"), 1).ok());
  }
  Pair pair;
  pair.learn(allreduce("a"));
  EXPECT_TRUE(pair.submit(1, allreduce("a"), 1).ok() && pair.submit(0, allreduce("a"), 2).ok());
  EXPECT_FALSE(pair.submit(0, allreduce("a"), 2).ok()) << "before the offer has left";
}

TEST(Carried, LargerWorldsRefuseIt) {
  Simulation world(3);
  world.run(allreduce("a"));
  Bytes message;
  Encoder encoder(message);
  write_carried(encoder, 1, Bytes(bytes_of(allreduce("a"))));
  EXPECT_FALSE(world.root.receive(Rank{1}, message, world.now).ok());
}

TEST(Carried, ImpossibleOffersAreRefused) {
  auto refuses = [](CacheId id, size_t bytes, bool twice) {
    Pair pair;
    pair.learn(allreduce("a"));
    Bytes message, data(bytes);
    Encoder encoder(message);
    encoder.varint(2);  // the message that follows the plan
    write_offer(encoder, {.id = id, .data = data});
    if (twice) write_offer(encoder, {.id = id, .data = data});
    std::vector<Decision> decisions;
    return !pair.ranks[1].receive(message, decisions).ok();
  };
  size_t right = bytes_of(allreduce("a"));
  EXPECT_FALSE(refuses(1, right, false));
  EXPECT_TRUE(refuses(1, right, true));
  EXPECT_TRUE(refuses(1, right + 1, false));
  EXPECT_TRUE(refuses(2, right, false)) << "nobody knows this id";
}

}  // namespace
}  // namespace hvd
