// A rank of a process set over several hosts ends without a word: every other rank's collective fails, none hangs.
#include <gtest/gtest.h>

#include "support/sets.h"

namespace hvd {
namespace {

using test::RankContext;

constexpr size_t kBytes = 6000;  // several rounds, more than the staging memory holds

struct Verb {
  const char* name;
  Status (*run)(RankContext& context, Bytes& data, Bytes& other);
};

// Equal pieces for all ranks.
std::vector<Segments> pieces(Bytes& data, int32_t ranks) {
  std::vector<Segments> all;
  size_t each = data.size() / static_cast<size_t>(ranks) / 8 * 8;
  for (int32_t p = 0; p < ranks; p++) all.emplace_back(data.data() + static_cast<size_t>(p) * each, each);
  return all;
}

constexpr Verb kVerbs[] = {
    {"allreduce",
     [](RankContext& context, Bytes& data, Bytes&) {
       Segments all(data.data(), data.size());
       return context.collectives.allreduce(all, all, {});
     }},
    {"small_allreduce",
     [](RankContext& context, Bytes& data, Bytes&) {
       Segments few(data.data(), 8);
       return context.collectives.allreduce(few, few, {});
     }},
    {"allgather",
     [](RankContext& context, Bytes& data, Bytes& other) {
       return context.collectives.allgather(pieces(data, context.size)[0], pieces(other, context.size));
     }},
    {"broadcast", [](RankContext& context, Bytes& data,
                     Bytes&) { return context.collectives.broadcast(1, Segments(data.data(), data.size())); }},
    {"alltoall",
     [](RankContext& context, Bytes& data, Bytes& other) {
       auto sent = pieces(data, context.size), received = pieces(other, context.size);
       return context.collectives.alltoall(sent, received, sent[0].bytes());
     }},
    {"reducescatter",
     [](RankContext& context, Bytes& data, Bytes& other) {
       return context.collectives.reducescatter(pieces(data, context.size), pieces(other, context.size)[0], {});
     }},
    {"adasum",
     [](RankContext& context, Bytes& data, Bytes& other) {
       return context.collectives.adasum(data.data(), other.data(), data.size() / 4, DType::f32, 1.0, 1.0);
     }},
    {"barrier", [](RankContext& context, Bytes&, Bytes&) { return context.collectives.barrier(); }},
};

struct Case {
  std::vector<int32_t> hosts;
  int32_t victim;
};

class LostPeer : public testing::TestWithParam<Case> {};

TEST_P(LostPeer, EveryCollectiveOfAllOthersFails) {
  for (const Verb& verb : kVerbs) {
    test::run_set(
        {.hosts = GetParam().hosts},
        [&](RankContext context) {
          Bytes data(kBytes), other(kBytes);
          for (int i = 0; i < 3; i++) ASSERT_TRUE(verb.run(context, data, other).ok()) << verb.name;
          Status status = context.collectives.barrier();  // a rank that has passed it knows that all have reached it
          if (context.rank == GetParam().victim) return;
          // Ranks that only send may get through a few more before they notice.
          while (status.ok()) status = verb.run(context, data, other);
          EXPECT_EQ(status.code(), Code::peer_lost) << verb.name << ": " << status.message();
        },
        false);
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, LostPeer,
                         testing::Values(Case{{1, 1}, 1}, Case{{2, 2}, 0}, Case{{2, 2}, 3}, Case{{1, 2, 3}, 0},
                                         Case{{1, 2, 3}, 5}, Case{{1, 1, 1, 1, 1}, 2}),
                         [](const auto& test) {
                           std::string name;
                           for (int32_t ranks : test.param.hosts) name += std::to_string(ranks) + "_";
                           return name + "without_" + std::to_string(test.param.victim);
                         });

}  // namespace
}  // namespace hvd
