// Every implementation of Collectives against a serial reference: all dtypes, reduce operations and sizes, 1 to 9 ranks
// of one host and process sets over several. Small staging memory lets small tensors reach every path.
#include "collectives/collectives.h"

#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <random>

#include "support/sets.h"

namespace hvd {
namespace {

using test::RankContext;
using test::Where;

constexpr DType kAllTypes[] = {DType::u8,  DType::i8,  DType::u16,     DType::i16,  DType::i32, DType::i64, DType::f16,
                               DType::f32, DType::f64, DType::boolean, DType::bf16, DType::c64, DType::c128};
// Elements: empty, one, odd, inside one step, one chunk, many chunks (1 KiB each) with a ragged end.
constexpr size_t kCounts[] = {0, 1, 3, 14, 257, 1031, 5003};
constexpr size_t kOneShot = 512;

// A rank's tensor: every rank can compute everybody's. Small whole numbers, so that sums and products are exact in
// every dtype whatever the order; the order itself is tested with float32 below.
Bytes tensor_of(DType dtype, int32_t rank, size_t count, int32_t salt = 0) {
  Bytes tensor(count * size_of(dtype));
  for (size_t i = 0; i < count; i++) {
    int value = static_cast<int>((i * 7 + static_cast<size_t>(rank) * 3 + static_cast<size_t>(salt)) % 3);
    auto put = [&](auto typed) { std::memcpy(tensor.data() + i * sizeof typed, &typed, sizeof typed); };
    switch (dtype) {
      case DType::u8: put(static_cast<uint8_t>(value)); break;
      case DType::i8: put(static_cast<int8_t>(value - 1)); break;
      case DType::u16: put(static_cast<uint16_t>(value)); break;
      case DType::i16: put(static_cast<int16_t>(value - 1)); break;
      case DType::i32: put(static_cast<int32_t>(value - 1)); break;
      case DType::i64: put(static_cast<int64_t>(value - 1)); break;
      case DType::f16: put(static_cast<uint16_t>(value == 0 ? 0 : value == 1 ? 0x3c00 : 0x4000)); break;
      case DType::bf16: put(static_cast<uint16_t>(value == 0 ? 0 : value == 1 ? 0x3f80 : 0x4000)); break;
      case DType::f32: put(static_cast<float>(value)); break;
      case DType::f64: put(static_cast<double>(value)); break;
      case DType::boolean: put(static_cast<uint8_t>(value == 1)); break;
      case DType::c64: put(std::complex<float>(static_cast<float>(value), 1)); break;
      case DType::c128: put(std::complex<double>(value, 1)); break;
    }
  }
  return tensor;
}

std::vector<Bytes> tensors_of(DType dtype, int32_t ranks, size_t count, int32_t salt = 0) {
  std::vector<Bytes> all;
  for (int32_t rank = 0; rank < ranks; rank++) all.push_back(tensor_of(dtype, rank, count, salt));
  return all;
}

// Other tests compare the kernels with scalar code; here they are the reference for the expected data of each rank.
Bytes reduced(DType dtype, ReduceOp op, const std::vector<Bytes>& tensors, size_t count, double factor = 1.0) {
  Bytes result(count * size_of(dtype));
  std::vector<const std::byte*> sources;
  for (const Bytes& tensor : tensors) sources.push_back(tensor.data());
  reduce(dtype, op, result.data(), sources, count, factor);
  return result;
}

Segments all_of(Bytes& bytes) { return {bytes.data(), bytes.size()}; }

// Cuts a tensor into pieces of uneven element counts.
Segments pieces_of(Bytes& bytes, size_t width) {
  Segments pieces;
  size_t at = 0;
  for (size_t step = 1; at < bytes.size(); step = step * 3 % 97 + 1) {
    size_t length = std::min(bytes.size() - at, step * width);
    pieces.add(bytes.data() + at, length);
    at += length;
  }
  return pieces;
}

struct Layout {
  test::SetOfHosts set;
  Where where = Where::threads;
  bool one_host() const { return set.hosts.size() == 1; }
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.set.hosts.size() << " hosts"; }

class CollectivesTest : public testing::TestWithParam<Layout> {
 protected:
  void run(const std::function<void(RankContext)>& body) {
    const Layout& layout = GetParam();
    if (layout.one_host())
      test::run_ranks(layout.set.hosts[0], layout.where, test::small_settings(), kOneShot, body);
    else
      test::run_set(layout.set, body);
  }
};

TEST_P(CollectivesTest, AllreduceGivesEveryRankTheReduction) {
  run([](RankContext context) {
    for (DType dtype : kAllTypes) {
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product, ReduceOp::bit_and,
                          ReduceOp::bit_or, ReduceOp::bit_xor}) {
        if (!can_reduce(dtype, op)) continue;
        for (size_t count : kCounts) {
          std::vector<Bytes> tensors = tensors_of(dtype, context.size, count);
          Bytes in = tensors[static_cast<size_t>(context.rank)], out(in.size());
          Bytes expected = reduced(dtype, op, tensors, count);
          size_t width = size_of(dtype);
          ASSERT_TRUE(
              context.collectives.allreduce(pieces_of(in, width), pieces_of(out, width), {.dtype = dtype, .op = op})
                  .ok());
          ASSERT_EQ(out, expected) << name_of(dtype) << " " << name_of(op) << " " << count;
          ASSERT_EQ(in, tensors[static_cast<size_t>(context.rank)]) << "the input was changed";
          ASSERT_TRUE(context.collectives.allreduce(all_of(in), all_of(in), {.dtype = dtype, .op = op}).ok());
          ASSERT_EQ(in, expected) << "in place: " << name_of(dtype) << " " << name_of(op) << " " << count;
        }
      }
    }
  });
}

TEST_P(CollectivesTest, AllreduceScalesBeforeAndAfter) {
  run([](RankContext context) {
    for (DType dtype : kAllTypes) {
      if (!can_scale(dtype) || !can_reduce(dtype, ReduceOp::sum)) continue;
      for (size_t count : kCounts) {
        std::vector<Bytes> tensors = tensors_of(dtype, context.size, count);
        Bytes in = tensors[static_cast<size_t>(context.rank)], out(in.size());
        for (Bytes& tensor : tensors) scale(dtype, tensor.data(), tensor.data(), count, 2.0);
        Bytes expected = reduced(dtype, ReduceOp::sum, tensors, count, 0.5);
        ASSERT_TRUE(
            context.collectives.allreduce(all_of(in), all_of(out), {.dtype = dtype, .prescale = 2.0, .factor = 0.5})
                .ok());
        ASSERT_EQ(out, expected) << name_of(dtype) << " " << count;
      }
    }
  });
}

// Numbers whose sum depends on the order of the additions.
std::vector<float> wild_floats(int32_t rank, size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 100 * static_cast<unsigned>(count));
  std::normal_distribution<float> normal(0, 1e3f);
  std::vector<float> floats(count);
  for (float& x : floats) x = normal(random) * std::pow(10.f, static_cast<float>(random() % 9) - 4.f);
  return floats;
}

class OneHostTest : public CollectivesTest {};  // several hosts are reduced each before they meet

TEST_P(OneHostTest, FloatSumsHaveTheBitsOfTheSumInRankOrder) {
  run([](RankContext context) {
    for (size_t count : kCounts) {
      std::vector<float> expected = wild_floats(0, count), mine = wild_floats(context.rank, count);
      for (int32_t rank = 1; rank < context.size; rank++) {
        std::vector<float> theirs = wild_floats(rank, count);
        for (size_t i = 0; i < count; i++) expected[i] += theirs[i];
      }
      Segments data(reinterpret_cast<std::byte*>(mine.data()), count * sizeof(float));
      ASSERT_TRUE(context.collectives.allreduce(data, data, {}).ok());
      ASSERT_TRUE(count == 0 || std::memcmp(mine.data(), expected.data(), count * sizeof(float)) == 0) << count;
    }
  });
}

TEST_P(CollectivesTest, FloatSumsHaveTheSameBitsOnEveryRankAndRun) {
  run([](RankContext context) {
    for (size_t count : kCounts) {
      std::vector<float> first;
      for (int repeat = 0; repeat < 3; repeat++) {
        std::vector<float> mine = wild_floats(context.rank, count);
        Segments data(reinterpret_cast<std::byte*>(mine.data()), count * sizeof(float));
        ASSERT_TRUE(context.collectives.allreduce(data, data, {}).ok());
        std::vector<float> all(count * static_cast<size_t>(context.size));
        ASSERT_TRUE(
            context.collectives.allgather(std::as_bytes(std::span(mine)), reinterpret_cast<std::byte*>(all.data()))
                .ok());
        if (repeat == 0) first = mine;
        for (size_t i = 0; i < all.size(); i++) {
          ASSERT_EQ(std::bit_cast<uint32_t>(all[i]), std::bit_cast<uint32_t>(first[i % count])) << count << " " << i;
        }
      }
    }
  });
}

TEST_P(CollectivesTest, ReduceGivesTheRootTheBitsOfAnAllreduce) {
  run([](RankContext context) {
    for (int32_t root = 0; root < context.size; root++) {
      for (size_t count : kCounts) {
        std::vector<float> in = wild_floats(context.rank, count), all(count), out(context.rank == root ? count : 0);
        const std::vector<float> before = in;
        auto segments = [](std::vector<float>& v) {
          return Segments(reinterpret_cast<std::byte*>(v.data()), v.size() * sizeof(float));
        };
        Reduction reduction{.prescale = 0.5, .factor = 3.0};
        ASSERT_TRUE(context.collectives.allreduce(segments(in), segments(all), reduction).ok());
        ASSERT_TRUE(context.collectives.reduce(root, segments(in), segments(out), reduction).ok());
        ASSERT_EQ(in, before);
        if (context.rank == root) {
          ASSERT_TRUE(count == 0 || std::memcmp(out.data(), all.data(), count * sizeof(float)) == 0)
              << root << " " << count;
        }
      }
    }
  });
}

TEST_P(CollectivesTest, GatherAndScatterConcernTheRoot) {
  run([](RankContext context) {
    for (int32_t root = 0; root < context.size; root++) {
      for (size_t base : {0, 1, 40, 700, 3000}) {
        auto size_of_rank = [&](int32_t rank) { return static_cast<size_t>((rank * 13 + root) % 5) * base; };
        bool is_root = context.rank == root;
        size_t largest = 0;
        std::vector<Bytes> blocks;
        for (int32_t p = 0; p < context.size; p++) {
          blocks.push_back(tensor_of(DType::u8, p, size_of_rank(p), root));
          largest = std::max(largest, size_of_rank(p));
        }
        Bytes mine = blocks[static_cast<size_t>(context.rank)];
        std::vector<Bytes> received;
        std::vector<Segments> theirs, parts;
        for (int32_t p = 0; p < context.size; p++) received.emplace_back(is_root ? size_of_rank(p) : 0);
        for (Bytes& block : received) theirs.push_back(pieces_of(block, 1));
        ASSERT_TRUE(context.collectives.gather(root, pieces_of(mine, 1), theirs, largest).ok());
        if (is_root) ASSERT_EQ(received, blocks) << root << " " << base;
        for (Bytes& block : blocks) parts.push_back(is_root ? pieces_of(block, 1) : Segments());
        Bytes part(mine.size());
        ASSERT_TRUE(context.collectives.scatter(root, parts, all_of(part), largest).ok());
        ASSERT_EQ(part, mine) << root << " " << base;
      }
    }
  });
}

TEST_P(CollectivesTest, AllgatherTakesBlocksOfDifferentSizes) {
  run([](RankContext context) {
    for (size_t base : {0, 1, 40, 700, 3000}) {
      auto size_of_rank = [&](int32_t rank) { return static_cast<size_t>((rank * 13) % 5) * base; };
      Bytes mine = tensor_of(DType::u8, context.rank, size_of_rank(context.rank));
      std::vector<Bytes> received;
      for (int32_t p = 0; p < context.size; p++) received.emplace_back(size_of_rank(p));
      std::vector<Segments> theirs;
      for (Bytes& block : received) theirs.push_back(pieces_of(block, 1));
      ASSERT_TRUE(context.collectives.allgather(pieces_of(mine, 1), theirs).ok());
      for (int32_t p = 0; p < context.size; p++) {
        ASSERT_EQ(received[static_cast<size_t>(p)], tensor_of(DType::u8, p, size_of_rank(p))) << base << " from " << p;
      }
    }
  });
}

TEST_P(CollectivesTest, BroadcastBringsTheRootsBytes) {
  run([](RankContext context) {
    for (int32_t root = 0; root < context.size; root++) {
      for (size_t count : kCounts) {
        Bytes data = tensor_of(DType::f32, context.rank, count, root);
        ASSERT_TRUE(context.collectives.broadcast(root, pieces_of(data, 4)).ok());
        ASSERT_EQ(data, tensor_of(DType::f32, root, count, root)) << root << " " << count;
      }
    }
  });
}

TEST_P(CollectivesTest, AlltoallDeliversEveryPair) {
  run([](RankContext context) {
    for (size_t base : {0, 1, 30, 400, 2500}) {
      auto size_of_pair = [&](int32_t from, int32_t to) { return static_cast<size_t>((from * 3 + to * 5) % 4) * base; };
      std::vector<Bytes> out, in;
      std::vector<Segments> sent, received;
      size_t largest = 0;
      for (int32_t p = 0; p < context.size; p++) {
        out.push_back(tensor_of(DType::u8, context.rank, size_of_pair(context.rank, p), p));
        in.emplace_back(size_of_pair(p, context.rank));
        for (int32_t q = 0; q < context.size; q++) largest = std::max(largest, size_of_pair(p, q));
      }
      for (Bytes& block : out) sent.push_back(pieces_of(block, 1));
      for (Bytes& block : in) received.push_back(pieces_of(block, 1));
      ASSERT_TRUE(context.collectives.alltoall(sent, received, largest).ok());
      for (int32_t p = 0; p < context.size; p++) {
        ASSERT_EQ(in[static_cast<size_t>(p)], tensor_of(DType::u8, p, size_of_pair(p, context.rank), context.rank));
      }
    }
  });
}

TEST_P(CollectivesTest, ReducescatterGivesEachRankItsPart) {
  run([](RankContext context) {
    for (DType dtype : {DType::f32, DType::f16, DType::i64}) {
      for (size_t rows : {0, 1, 5, 100, 1201}) {
        auto share = [&](int32_t p) {
          size_t n = static_cast<size_t>(context.size), at = static_cast<size_t>(p);
          return rows / n + (at < rows % n ? 1 : 0);
        };
        std::vector<Bytes> tensors = tensors_of(dtype, context.size, rows);
        Bytes in = tensors[static_cast<size_t>(context.rank)];
        Bytes expected = reduced(dtype, ReduceOp::sum, tensors, rows);
        std::vector<Segments> parts;
        size_t at = 0, mine_at = 0;
        for (int32_t p = 0; p < context.size; p++) {
          if (p == context.rank) mine_at = at;
          parts.emplace_back(in.data() + at, share(p) * size_of(dtype));
          at += share(p) * size_of(dtype);
        }
        Bytes out(share(context.rank) * size_of(dtype));
        ASSERT_TRUE(context.collectives.reducescatter(parts, all_of(out), {.dtype = dtype}).ok());
        Bytes want(expected.begin() + static_cast<ptrdiff_t>(mine_at),
                   expected.begin() + static_cast<ptrdiff_t>(mine_at + out.size()));
        ASSERT_EQ(out, want) << name_of(dtype) << " " << rows;
      }
    }
  });
}

// The rule itself, on whole vectors: the group of rank i takes in that of i + distance.
std::vector<double> adasum_reference(std::vector<std::vector<double>> vectors) {
  auto dot_of = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  for (size_t distance = 1; distance < vectors.size(); distance *= 2) {
    for (size_t i = 0; i + distance < vectors.size(); i += 2 * distance) {
      std::vector<double>&a = vectors[i], &b = vectors[i + distance];
      double ab = dot_of(a, b), aa = dot_of(a, a), bb = dot_of(b, b);
      double of_a = aa == 0 ? 1 : 1 - ab / (2 * aa), of_b = bb == 0 ? 1 : 1 - ab / (2 * bb);
      for (size_t k = 0; k < a.size(); k++) a[k] = of_a * a[k] + of_b * b[k];
    }
  }
  return vectors[0];
}

// The members of each host, by position.
std::vector<std::vector<int32_t>> groups_of(const test::SetOfHosts& set) {
  std::vector<int32_t> host_of = test::hosts_of(set.hosts), members = set.members;
  for (int32_t rank = 0; set.members.empty() && rank < static_cast<int32_t>(host_of.size()); rank++) {
    members.push_back(rank);
  }
  return place(members, host_of, members[0]).hosts;
}

TEST_P(CollectivesTest, AdasumFollowsItsRuleInsideHostsAndThenBetweenThem) {
  std::vector<std::vector<int32_t>> hosts = groups_of(GetParam().set);
  run([&](RankContext context) {
    for (size_t count : {0, 1, 7, 300, 2000}) {
      std::vector<std::vector<double>> vectors;
      for (int32_t rank = 0; rank < context.size; rank++) {
        std::mt19937 random(static_cast<unsigned>(rank * 31) + static_cast<unsigned>(count));
        std::normal_distribution<double> normal(0.3, 1);
        auto& vector = vectors.emplace_back(count);
        for (double& x : vector) x = normal(random);
      }
      std::vector<double> mine = vectors[static_cast<size_t>(context.rank)], out(count);
      std::vector<std::vector<double>> of_hosts;
      for (const std::vector<int32_t>& members : hosts) {
        std::vector<std::vector<double>> of_members;
        for (int32_t p : members) of_members.push_back(vectors[static_cast<size_t>(p)]);
        of_hosts.push_back(adasum_reference(of_members));
      }
      std::vector<double> expected = adasum_reference(of_hosts);
      ASSERT_TRUE(context.collectives
                      .adasum(reinterpret_cast<std::byte*>(mine.data()), reinterpret_cast<std::byte*>(out.data()),
                              count, DType::f64, 2.0, 0.25)
                      .ok());
      for (size_t i = 0; i < count; i++) {
        ASSERT_NEAR(out[i], expected[i] / 2, 1e-9 * (1 + std::abs(expected[i]))) << count;
      }
      if (hosts.size() == 1 || GetParam().set.members.size() > 0) continue;
      bool is_tree_of_ranks = std::all_of(hosts.begin(), hosts.end(), [&](const auto& members) {
        return members.size() == hosts[0].size() && std::has_single_bit(members.size());
      });
      if (!is_tree_of_ranks) continue;
      expected = adasum_reference(vectors);
      for (size_t i = 0; i < count; i++) {
        ASSERT_NEAR(out[i], expected[i] / 2, 1e-9 * (1 + std::abs(expected[i]))) << "over all ranks, " << count;
      }
    }
  });
}

TEST_P(CollectivesTest, MixedSequencesStayInStep) {
  run([](RankContext context) {
    std::mt19937 random(99);  // the same sequence on every rank
    for (int round = 0; round < 120; round++) {
      size_t count = kCounts[random() % std::size(kCounts)];
      int32_t root = static_cast<int32_t>(random() % static_cast<unsigned>(context.size));
      Bytes data = tensor_of(DType::i32, context.rank, count, round);
      switch (random() % 4) {
        case 0:
          ASSERT_TRUE(context.collectives.allreduce(all_of(data), all_of(data), {.dtype = DType::i32}).ok());
          ASSERT_EQ(data,
                    reduced(DType::i32, ReduceOp::sum, tensors_of(DType::i32, context.size, count, round), count));
          break;
        case 1:
          ASSERT_TRUE(context.collectives.broadcast(root, all_of(data)).ok());
          ASSERT_EQ(data, tensor_of(DType::i32, root, count, round));
          break;
        case 2: {
          Bytes all(data.size() * static_cast<size_t>(context.size));
          ASSERT_TRUE(context.collectives.allgather(data, all.data()).ok());
          Bytes theirs(all.begin() + static_cast<ptrdiff_t>(data.size()) * root,
                       all.begin() + static_cast<ptrdiff_t>(data.size()) * (root + 1));
          ASSERT_EQ(theirs, tensor_of(DType::i32, root, count, round));
          break;
        }
        default: ASSERT_TRUE(context.collectives.barrier().ok());
      }
    }
  });
}

std::vector<Layout> one_host(std::initializer_list<int32_t> sizes, Where where) {
  std::vector<Layout> layouts;
  for (int32_t size : sizes) layouts.push_back({.set = {.hosts = {size}}, .where = where});
  return layouts;
}

std::string name_of_layout(const testing::TestParamInfo<Layout>& info) {
  const test::SetOfHosts& set = info.param.set;
  std::string name;
  for (int32_t ranks : set.hosts) name += (name.empty() ? "" : "_") + std::to_string(ranks);
  if (!set.members.empty()) name += "_members";
  for (int32_t member : set.members) name += "_" + std::to_string(member);
  return name + (set.flat ? "_flat" : "") + (info.param.one_host() ? "ranks" : "");
}

const auto kThreads = testing::ValuesIn(one_host({1, 2, 3, 4, 5, 6, 7, 8, 9}, Where::threads));
const auto kProcesses = testing::ValuesIn(one_host({2, 3, 5, 8}, Where::processes));
INSTANTIATE_TEST_SUITE_P(Threads, CollectivesTest, kThreads, name_of_layout);
INSTANTIATE_TEST_SUITE_P(Threads, OneHostTest, kThreads, name_of_layout);
INSTANTIATE_TEST_SUITE_P(Processes, CollectivesTest, kProcesses, name_of_layout);
INSTANTIATE_TEST_SUITE_P(Processes, OneHostTest, kProcesses, name_of_layout);
INSTANTIATE_TEST_SUITE_P(Hosts, CollectivesTest,
                         testing::Values(Layout{{.hosts = {1, 1}}}, Layout{{.hosts = {2, 2}}},
                                         Layout{{.hosts = {3, 2}}}, Layout{{.hosts = {1, 2, 3}}},
                                         Layout{{.hosts = {2, 2, 2, 2}}}, Layout{{.hosts = {1, 1, 1, 1, 1}}}),
                         name_of_layout);
// Hosts without a member or with one; members of different hosts in any order.
INSTANTIATE_TEST_SUITE_P(Subsets, CollectivesTest,
                         testing::Values(Layout{{.hosts = {2, 2}, .members = {1, 3}}},
                                         Layout{{.hosts = {3, 2}, .members = {4, 0, 3, 2}}},
                                         Layout{{.hosts = {2, 1, 2}, .members = {0, 1, 3, 4}}},
                                         Layout{{.hosts = {1, 2, 3}, .members = {5, 0, 2, 4, 1}}}),
                         name_of_layout);
INSTANTIATE_TEST_SUITE_P(Flat, CollectivesTest,
                         testing::Values(Layout{{.hosts = {2, 2}, .flat = true}},
                                         Layout{{.hosts = {1, 2, 3}, .flat = true}},
                                         Layout{{.hosts = {3, 1}, .flat = true}}),
                         name_of_layout);

TEST(StoreChoice, FollowsTheMedianOfItsProbes) {
  StoreChoice choice;
  auto probe = [&](double nanoseconds_per_byte) {
    while (!choice.is_probe_due(64 << 10)) continue;
    double took = nanoseconds_per_byte * StoreChoice::kProbeBytes;
    choice.learn(StoreChoice::kProbeBytes, std::chrono::nanoseconds(static_cast<int64_t>(took)));
    return choice.current();
  };
  EXPECT_EQ(choice.current(), StoreHint::cached);
  for (int i = 0; i < 3; i++) EXPECT_EQ(probe(0.05), StoreHint::cached);
  EXPECT_EQ(probe(50.0), StoreHint::cached);  // preempted once
  EXPECT_EQ(probe(0.05), StoreHint::cached);
  EXPECT_EQ(probe(0.05), StoreHint::cached);
  probe(0.5);  // the cores have moved apart
  EXPECT_EQ(probe(0.5), StoreHint::streaming);
  EXPECT_EQ(probe(0.05), StoreHint::streaming);  // one cheap probe is chance, two are not
  EXPECT_EQ(probe(0.05), StoreHint::cached);
}

TEST(StoreChoice, ProbesRarelyAndNeverWithTinyCopies) {
  StoreChoice choice;
  EXPECT_TRUE(choice.is_probe_due(1 << 20));
  int probes = 0;
  for (int i = 0; i < 1024; i++) probes += choice.is_probe_due(64 << 10) ? 1 : 0;  // 64 MiB
  EXPECT_GT(probes, 8);
  EXPECT_LT(probes, 64);
  for (int i = 0; i < 1 << 20; i++) EXPECT_FALSE(choice.is_probe_due(56));
}

}  // namespace
}  // namespace hvd
