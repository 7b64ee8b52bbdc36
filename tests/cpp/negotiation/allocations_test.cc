// What the heap sees of the steady state: this program counts its allocations.
#include <cstdlib>
#include <new>

#include "negotiation/simulation.h"

namespace {

size_t allocations = 0, frees = 0;

}  // namespace

// Not inlined: the compiler would take the pairs of new and free for mistakes.
[[gnu::noinline]] void* operator new(size_t size) {
  allocations++;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  frees += memory != nullptr ? 1 : 0;
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace hvd {
namespace {

TEST(SteadyState, CachedAllreduceAllocatesOnlyThePlansItReturns) {
  constexpr int32_t kSize = 4;
  Coordinator root(kSize, {});
  std::vector<std::unique_ptr<Negotiator>> ranks;
  for (int32_t rank = 0; rank < kSize; rank++) ranks.push_back(std::make_unique<Negotiator>(kSize));
  Request request = allreduce("a.name.longer.than.the.small.string.buffer");
  Bytes message;
  std::vector<Decision> decisions;
  auto step = [&] {
    for (int32_t rank = 0; rank < kSize; rank++) {
      ranks[static_cast<size_t>(rank)]->announce(request);
      ASSERT_TRUE(root.receive(Rank{rank}, ranks[static_cast<size_t>(rank)]->outgoing(), TimePoint{}).ok());
      ranks[static_cast<size_t>(rank)]->clear_outgoing();
    }
    message.clear();
    ASSERT_TRUE(root.decide(TimePoint{}, message));
    for (const auto& rank : ranks) {
      decisions.clear();
      ASSERT_TRUE(rank->receive(message, decisions).ok());
    }
  };
  for (int i = 0; i < 10; i++) step();
  size_t before = allocations;
  for (int i = 0; i < 100; i++) step();
  EXPECT_EQ(allocations - before, 100u * kSize) << "one vector of tensors per rank and plan";
}

TEST(SteadyState, CachedAllreduceInATreeAllocatesOnlyThePlansItReturns) {
  constexpr int32_t kSize = 5;
  Coordinator root({{0}, {1, 2, 3, 4}}, {});
  Aggregator upper(kSize, {{1}, {2}, {3, 4}}, {.hold = seconds(1)}), lower(kSize, {{3}, {4}}, {.hold = seconds(1)});
  std::vector<std::unique_ptr<Negotiator>> ranks;
  for (int32_t rank = 0; rank < kSize; rank++) ranks.push_back(std::make_unique<Negotiator>(kSize));
  Request request = allreduce("a.name.longer.than.the.small.string.buffer");
  Bytes message;
  std::vector<Decision> decisions;
  auto step = [&] {
    TimePoint now{};
    for (int32_t rank = 0; rank < kSize; rank++) {
      Negotiator& speaker = *ranks[static_cast<size_t>(rank)];
      speaker.announce(request);
      Status status = rank == 0  ? root.receive(Rank{rank}, speaker.outgoing(), now)
                      : rank < 3 ? upper.receive(Rank{rank}, speaker.outgoing(), now)
                                 : lower.receive(Rank{rank}, speaker.outgoing(), now);
      ASSERT_TRUE(status.ok());
      speaker.clear_outgoing();
    }
    message.clear();
    ASSERT_TRUE(lower.flush(now, message) && upper.receive(Rank{3}, message, now).ok());
    message.clear();
    ASSERT_TRUE(upper.flush(now, message) && root.receive(Rank{1}, message, now).ok());
    message.clear();
    ASSERT_TRUE(root.decide(now, message));
    ASSERT_TRUE(upper.follow(message, now).ok() && lower.follow(message, now).ok());
    for (const auto& rank : ranks) {
      decisions.clear();
      ASSERT_TRUE(rank->receive(message, decisions).ok());
    }
  };
  for (int i = 0; i < 10; i++) step();
  size_t before = allocations;
  for (int i = 0; i < 100; i++) step();
  EXPECT_EQ(allocations - before, 100u * kSize) << "one vector of tensors per rank and plan";
}

TEST(SteadyState, CarriedAllreduceAllocatesNothing) {
  struct Ear final : CarriedListener {
    void on_carried(const Request&, ByteView theirs) override { heard += theirs.size(); }
    size_t heard = 0;
  };
  Ear ear;
  CoordinatorSettings settings;
  settings.carried = &ear;
  Coordinator root(2, settings);
  Negotiator first(2), second(2, &ear);
  Request request = allreduce("a.name.longer.than.the.small.string.buffer");
  Bytes tensor(bytes_of(request)), message;
  std::vector<Decision> decisions;
  auto step = [&](Rank rank, Negotiator& speaker, ByteView data) {
    speaker.announce(request, data);
    ASSERT_TRUE(root.receive(rank, speaker.outgoing(), TimePoint{}).ok());
    speaker.clear_outgoing();
    speaker.finish_offered();
    message.clear();
    if (root.decide(TimePoint{}, message)) {
      ASSERT_TRUE(first.receive(message, decisions).ok() && second.receive(message, decisions).ok());
    }
    root.finish_offered(TimePoint{});
    decisions.clear();
  };
  auto steps = [&](int count, ByteView data) {
    for (int i = 0; i < count; i++) {
      step(Rank{i % 2}, i % 2 == 0 ? first : second, data);
      step(Rank{1 - i % 2}, i % 2 == 0 ? second : first, data);
    }
  };
  steps(1, {});
  steps(10, tensor);
  size_t before = allocations;
  steps(100, tensor);
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(ear.heard, 2 * 110 * tensor.size());
}

TEST(SteadyState, NamesThatComeAndGoLeaveNothingBehind) {
  CoordinatorSettings settings;
  settings.cache_capacity = 2;
  Simulation world(2, settings);
  auto run = [&](int first, int last) {
    for (int i = first; i < last; i++) world.run(allreduce(fmt::format("a.name.that.needs.the.heap.{}", i)));
    return allocations - frees;
  };
  size_t blocks = run(1000, 1100);
  EXPECT_EQ(run(1100, 1200), blocks);
}

}  // namespace
}  // namespace hvd
