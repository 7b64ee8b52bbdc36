// The messages of a node to the node above. All suites that run in every tree test the results.
#include "negotiation/aggregator.h"

#include "negotiation/rank_set.h"
#include "negotiation/simulation.h"
#include "negotiation/subtree_messages.h"

namespace hvd {
namespace {

using testing::ElementsAre;

// Ranks 1 to 4 are below the node, 3 and 4 below another; rank 0 is elsewhere. A root that all are children of writes
// the down messages.
class Below {
 public:
  explicit Below(size_t cache_capacity = 1024)
      : node(5, {{1}, {2}, {3, 4}}, {.hold = seconds(10)}),
        lower_(5, {{3}, {4}}, {.hold = seconds(10)}),
        root_(5, {.cache_capacity = cache_capacity}) {
    for (int i = 0; i < 5; i++) ranks.push_back(std::make_unique<Negotiator>(5));
  }

  // The rank announces it, and the nodes receive that at once.
  void submit(int32_t rank, const Request& request) {
    ranks[static_cast<size_t>(rank)]->announce(request);
    hear(rank);
  }
  // The node's messages now, one text per item.
  std::vector<std::string> said() {
    Bytes message;
    if (lower_.flush(now, message)) expect_ok(node.receive(Rank{3}, message, now));
    bytes.clear();
    if (!node.flush(now, bytes)) return {};
    Decoder in(bytes);
    std::vector<std::string> texts;
    while (!in.at_end()) {
      SubtreeItem item;
      read_subtree_item(in, item, 5);
      texts.push_back(text_of(item));
    }
    EXPECT_TRUE(in.ok());
    return texts;
  }
  // Only the nodes receive it.
  void submit_to_node(int32_t rank, const Request& request) {
    ranks[static_cast<size_t>(rank)]->announce(request);
    hear(rank, false);
  }
  // All ranks submit the request, and the root plans it.
  void plan(const Request& request) {
    for (int32_t rank = 0; rank < 5; rank++) submit(rank, request);
    said();
    follow();
  }
  // The next message of the root. The ranks in `slow` do not read it yet.
  void follow(const std::vector<int32_t>& slow = {}) {
    Bytes message;
    ASSERT_TRUE(root_.decide(now, message));
    expect_ok(node.follow(message, now));
    expect_ok(lower_.follow(message, now));
    std::vector<Decision> decisions;
    for (int32_t rank = 0; rank < 5; rank++) {
      bool reads = std::find(slow.begin(), slow.end(), rank) == slow.end();
      if (reads) expect_ok(ranks[static_cast<size_t>(rank)]->receive(message, decisions));
    }
  }

  TimePoint now = TimePoint{} + std::chrono::hours(1);
  std::vector<std::unique_ptr<Negotiator>> ranks;
  Aggregator node;
  Bytes bytes;  // of the last message

 private:
  static void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

  void hear(int32_t rank, bool root_hears = true) {
    ByteView message = ranks[static_cast<size_t>(rank)]->outgoing();
    if (root_hears) expect_ok(root_.receive(Rank{rank}, message, now));
    if (rank > 0) expect_ok((rank < 3 ? node : lower_).receive(Rank{rank}, message, now));
    ranks[static_cast<size_t>(rank)]->clear_outgoing();
  }

  static std::string text_of(const SubtreeItem& item) {
    std::string text;
    if (item.knows > 0) text += fmt::format("knowing {} ", item.knows);
    if (item.age > Duration{}) text += fmt::format("for {:.1f} s ", seconds_of(item.age));
    switch (item.tag) {
      case SubtreeTag::acknowledge: return text + fmt::format("acknowledge {}", item.value);
      case SubtreeTag::ids:
        text += "ids";
        for (const IdRun& run : item.runs) text += fmt::format(" {}-{}", run.first, run.first + run.length - 1);
        return text;
      case SubtreeTag::full: return text + "all " + item.request.name;
      case SubtreeTag::some:
        text += text_of_ranks(item.ranks);
        return text + (item.value > 0 ? fmt::format(" id {}", item.value) : " " + item.request.name);
      case SubtreeTag::join: return text + text_of_ranks(item.ranks) + " joined";
      case SubtreeTag::shutdown: return text + fmt::format("rank {} shuts down", item.value);
      case SubtreeTag::knows:
      case SubtreeTag::age: break;
    }
    return text;
  }

  Aggregator lower_;
  Coordinator root_;
};

TEST(Aggregator, SaysOnceWhatAllRanksBelowSubmitted) {
  Below below;
  for (int32_t rank : {4, 1, 3}) below.submit(rank, allreduce("a"));
  EXPECT_THAT(below.said(), ElementsAre());
  below.submit(2, allreduce("a"));
  EXPECT_THAT(below.said(), ElementsAre("all a"));
  EXPECT_THAT(below.said(), ElementsAre());
  EXPECT_EQ(below.node.next_deadline(), kNever);
}

TEST(Aggregator, SaysAWholeCachedStepInAFewBytes) {
  Below below;
  std::vector<Request> requests;
  for (int i = 0; i < 100; i++) requests.push_back(allreduce(fmt::format("t{}", i)));
  for (int32_t rank = 0; rank < 5; rank++) {
    for (const Request& request : requests) below.submit(rank, request);
  }
  below.said();
  below.follow();
  for (int32_t rank = 1; rank < 5; rank++) {
    std::rotate(requests.begin(), requests.begin() + 17, requests.end());
    for (const Request& request : requests) below.submit(rank, request);
  }
  EXPECT_THAT(below.said(), ElementsAre("acknowledge 1", "ids 1-100"));
  EXPECT_LE(below.bytes.size(), 6u);
}

TEST(Aggregator, SaysWhoWaitsAfterTheHoldTimeAndThenAtOnce) {
  Below below;
  below.submit(1, allreduce("a"));
  below.now += seconds(4);
  below.submit(3, allreduce("a"));
  EXPECT_EQ(below.node.next_deadline(), below.now + seconds(6));
  EXPECT_THAT(below.said(), ElementsAre());
  below.now += seconds(6);
  EXPECT_THAT(below.said(), ElementsAre("for 10.0 s rank 1 a"));
  below.now += seconds(4);
  EXPECT_THAT(below.said(), ElementsAre("for 10.0 s rank 3 a"));
  below.submit(2, allreduce("a"));
  EXPECT_THAT(below.said(), ElementsAre("rank 2 a"));
  below.submit(4, allreduce("a"));
  EXPECT_THAT(below.said(), ElementsAre("rank 4 a"));
}

TEST(Aggregator, SaysForHowLongTheFirstWaitedIfThatIsLong) {
  Below below;
  below.submit(1, allreduce("a"));
  below.now += seconds(5);
  for (int32_t rank : {2, 3, 4}) below.submit(rank, allreduce("a"));
  EXPECT_THAT(below.said(), ElementsAre("for 5.0 s all a"));
}

TEST(Aggregator, SaysWhoAskedForWhatIfTheyDiffer) {
  Below below;
  for (int32_t rank : {1, 3, 4}) below.submit(rank, allreduce("a"));
  below.submit(2, allreduce("a", {9}));
  EXPECT_THAT(below.said(), ElementsAre("rank 1 a", "rank 2 a", "ranks 3-4 a"));
}

TEST(Aggregator, JoinNeverOvertakesWhatTheRankSubmitted) {
  Below below;
  below.submit(1, allreduce("a"));
  below.submit(2, allreduce("b"));
  below.submit(1, join());
  EXPECT_THAT(below.said(), ElementsAre("rank 1 a", "rank 1 joined"));
  for (int32_t rank : {3, 4}) below.submit(rank, allreduce("b"));
  EXPECT_THAT(below.said(), ElementsAre("all b")) << "without the rank that has joined";
}

TEST(Aggregator, SaysThatASubmissionComesAfterTheErrorOfItsName) {
  Below below;
  for (int32_t rank = 0; rank < 5; rank++) below.submit(rank, allreduce("a", {rank == 1 ? 1 : 2}));
  below.said();
  below.follow({2});  // rank 2 has not read of the mismatch, so that nothing can be acknowledged
  for (int32_t rank : {1, 3, 4}) below.submit(rank, allreduce("a"));
  EXPECT_THAT(below.said(), ElementsAre());
  below.now += seconds(10);
  EXPECT_THAT(below.said(), ElementsAre("knowing 1 for 10.0 s rank 1 a", "knowing 1 for 10.0 s ranks 3-4 a"));
}

TEST(Aggregator, EvictedIdGoesUpBeforeTheEvictionIsAcknowledged) {
  Below below(1);  // room for one plan
  below.plan(allreduce("a"));
  below.submit_to_node(1, allreduce("a"));
  EXPECT_THAT(below.said(), ElementsAre());
  for (int32_t rank = 0; rank < 5; rank++) below.submit(rank, allreduce("b"));
  EXPECT_THAT(below.said(), ElementsAre("all b", "acknowledge 1"));
  below.follow();  // evicts a to make room for b
  for (int32_t rank : {2, 3, 4}) below.submit_to_node(rank, allreduce("c"));
  below.submit_to_node(1, allreduce("c"));
  EXPECT_THAT(below.said(), ElementsAre("rank 1 id 1", "all c", "acknowledge 1"));
}

TEST(Aggregator, EvictedIdOfTheOnlyMemberBelowGoesUpBeforeTheEvictionIsAcknowledged) {
  Below below(1);
  below.plan(add_set({0, 1}));
  below.plan(add_set({0, 2}));
  for (int32_t rank : {0, 1}) below.submit(rank, in_set(1, allreduce("a")));
  EXPECT_THAT(below.said(), ElementsAre("all a"));
  below.follow();
  below.ranks[1]->announce(in_set(1, allreduce("a")));  // on its way as a number while the others make room for b
  for (int32_t rank : {0, 2}) below.submit(rank, in_set(2, allreduce("b")));
  EXPECT_THAT(below.said(), ElementsAre("all b"));
  below.follow();
  for (int32_t rank : {1, 2, 3, 4}) below.submit_to_node(rank, allreduce("c"));
  EXPECT_THAT(below.said(), ElementsAre("rank 1 id 1", "all c", "acknowledge 3"));
}

TEST(Aggregator, ReportsWhoBreaksTheProtocol) {
  Below below;
  below.submit(1, allreduce("a"));
  Negotiator twin(5);
  twin.announce(allreduce("a"));
  Status status = below.node.receive(Rank{1}, twin.outgoing(), below.now);
  EXPECT_EQ(status.message(), "rank 1 broke the negotiation protocol: a was submitted twice");
}

}  // namespace
}  // namespace hvd
