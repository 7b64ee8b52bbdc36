#include "observe/writer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "observe/open_metrics.h"
#include "observe/reader.h"

namespace hvd::observe {
namespace {

Memory own_memory() {
  auto memory = Memory::create();
  EXPECT_TRUE(memory.ok());
  return std::move(*memory);
}

Operation allreduce(const std::string& name, int64_t elements = 4) {
  Operation operation;
  operation.request.name = name;
  operation.request.kind = Kind::allreduce;
  operation.request.dtype = DType::f32;
  operation.input.dtype = DType::f32;
  operation.input.shape = {elements};
  return operation;
}

nlohmann::json metrics(const Writer& writer) { return nlohmann::json::parse(metrics_text(writer.memory())); }

TEST(Writer, CountsOperationsByKindTypeAndSet) {
  Writer writer(own_memory());
  Operation operation = allreduce("a", 10);
  operation.request.process_set = 3;
  Record record = writer.on_submit(operation, 1);
  EXPECT_EQ(metrics(writer)["queue_depth"], 1);
  Writer::Agreed agreed = writer.on_plan(1);
  writer.on_agreed(agreed, record, operation);
  writer.on_done(record, operation, true, agreed.when + 5000);
  nlohmann::json all = metrics(writer);
  EXPECT_EQ(all["operations"]["allreduce"], nlohmann::json({{"count", 1}, {"bytes", 40}, {"failed", 0}}));
  EXPECT_EQ(all["dtypes"]["float32"]["bytes"], 40);
  EXPECT_EQ(all["process_sets"]["3"]["count"], 1);
  EXPECT_EQ(all["queue_depth"], 0);
  EXPECT_EQ(all["plan_bytes"], 40);
  EXPECT_EQ(all["execution"]["count"], 1);
  EXPECT_DOUBLE_EQ(all["execution"]["seconds"].get<double>(), 5000e-9);
}

TEST(Writer, AFailedOperationSaysSoAndHasNoDuration) {
  Writer writer(own_memory());
  Operation operation = allreduce("a");
  Record record = writer.on_submit(operation, 1);
  writer.on_done(record, operation, false, writer.now());
  EXPECT_EQ(metrics(writer)["operations"]["allreduce"]["failed"], 1);
  EXPECT_EQ(metrics(writer)["agreement"]["count"], 0);
  EXPECT_EQ(read_ring(writer.memory()).at(0).facts.outcome, Outcome::failed);
}

TEST(Writer, RemembersTheLastOperationsInOrder) {
  Writer writer(own_memory());
  for (size_t i = 0; i < kRing + 10; i++) writer.on_submit(allreduce("t" + std::to_string(i)), 1);
  std::vector<Remembered> ring = read_ring(writer.memory());
  ASSERT_EQ(ring.size(), kRing);
  EXPECT_EQ(ring.front().name, "t10");
  EXPECT_EQ(ring.back().name, "t" + std::to_string(kRing + 9));
  EXPECT_EQ(read_ring(writer.memory(), 3).front().name, "t" + std::to_string(kRing + 7));
}

// Its entry belongs to another operation by now.
TEST(Writer, AnOperationThatOutlivesTheRingChangesNoOther) {
  Writer writer(own_memory());
  Operation old = allreduce("old");
  Record record = writer.on_submit(old, 1);
  for (size_t i = 0; i < kRing; i++) writer.on_submit(allreduce("new"), 1);
  writer.on_agreed(writer.on_plan(1), record, old);
  writer.on_done(record, old, true, writer.now());
  for (const Remembered& one : read_ring(writer.memory())) {
    EXPECT_EQ(one.name, "new");
    EXPECT_EQ(one.facts.outcome, Outcome::pending);
    EXPECT_EQ(one.agreed, 0);
  }
  EXPECT_EQ(metrics(writer)["finished"], 1);
}

TEST(Writer, OfALongNameTheEndIsKept) {
  Writer writer(own_memory());
  writer.on_submit(allreduce(std::string(1000, 'x') + ".layer7"), 1);
  std::string name = read_ring(writer.memory()).at(0).name;
  EXPECT_TRUE(name.starts_with("...x"));
  EXPECT_TRUE(name.ends_with("x.layer7"));
  EXPECT_EQ(name.size(), kNameBytes + 3);
}

TEST(Writer, ABucketHasTheTimesBelowItsEnd) {
  EXPECT_EQ(bucket_of(0), 0u);
  EXPECT_EQ(bucket_of(1023), 0u);
  EXPECT_EQ(bucket_of(1024), 1u);
  EXPECT_EQ(bucket_of(2047), 1u);
  EXPECT_EQ(bucket_of(2048), 2u);
  EXPECT_EQ(bucket_of(~uint64_t{0}), kBuckets - 1);
}

// Every name says its number, so an entry that mixes two would show.
TEST(Reader, NeverSeesHalfAnEntry) {
  Writer writer(own_memory());
  constexpr int kOperations = 200000;
  std::thread writing([&] {
    for (int64_t i = 1; i <= kOperations; i++) writer.on_submit(allreduce(std::to_string(i), i), 1);
  });
  size_t seen = 0;
  bool is_over = false;
  while (!is_over) {
    is_over = writer.memory().submitted.load() == kOperations;
    for (const Remembered& one : read_ring(writer.memory())) {
      seen++;
      ASSERT_EQ(one.name, std::to_string(one.number));
      ASSERT_EQ(one.bytes, one.number * 4);
    }
  }
  writing.join();
  EXPECT_GT(seen, 0u);
}

TEST(Stopwatch, ShowsWhatTheClockShows) {
  Stopwatch stopwatch;
  auto clock = [] { return Clock::now().time_since_epoch().count(); };
  for (int round = 0; round < 3; round++) {
    int64_t end = clock() + 2000000;
    while (clock() < end) stopwatch.now();
    stopwatch.adjust();
    int64_t before = clock(), shown = stopwatch.now(), after = clock();
    EXPECT_GE(shown, before - 1000);
    EXPECT_LE(shown, after + 1000);
  }
}

// Whatever a program writes there, its launcher must be able to show it.
TEST(Reader, BearsAnyContent) {
  Memory memory = own_memory();
  auto* words = reinterpret_cast<Word*>(&*memory);
  uint64_t state = 1;
  for (size_t i = 0; i < sizeof(Shared) / 8; i++) {
    state = state * 6364136223846793005 + 1442695040888963407;
    words[i].store(i % 3 == 0 ? ~uint64_t{0} : state);
  }
  EXPECT_FALSE(metrics_text(*memory).empty());
  for (const Remembered& one : read_ring(*memory)) {
    std::string text = operation_json(one, -1).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    EXPECT_NE(text.find("\"number\""), std::string::npos);
  }
}

TEST(Memory, IsFoundByWhatTheLauncherCallsIt) {
  auto made = make_descriptors();
  ASSERT_TRUE(made.ok());
  Found found = find_descriptors(descriptors_text(*made));
  EXPECT_EQ(found.memory, made->memory.get());
  EXPECT_EQ(found.stacks, made->stacks.get());
  auto one = Memory::map(found.memory), other = Memory::map(found.memory);
  ASSERT_TRUE(one.ok() && other.ok());
  (*one)->commits.store(7);
  EXPECT_EQ((*other)->commits.load(), 7u);
  for (const char* text : {"", ",", "5", "201:1:1,202:1:2", "x:y:z,1:2:3"})
    EXPECT_EQ(find_descriptors(text).memory, -1);
}

TEST(Memory, OfAnotherVersionIsRefused) {
  auto made = make_descriptors();
  ASSERT_TRUE(made.ok());
  {
    auto memory = Memory::map(made->memory.get());
    ASSERT_TRUE(memory.ok());
    (*memory)->version.store(kVersion + 1);
  }
  EXPECT_FALSE(Memory::map(made->memory.get()).ok());
  EXPECT_FALSE(Memory::map(made->stacks.get()).ok());  // it is empty
  EXPECT_NE(::ftruncate(made->memory.get(), 0), 0) << "a worker could make its launcher fail";
}

TEST(OpenMetrics, EndsWithItsMarkAndEscapesLabels) {
  Writer writer(own_memory());
  writer.enter_world({.rank = 2, .world_size = 4});
  std::string text = open_metrics({metrics(writer), nlohmann::json(3), nlohmann::json::object()}, "a\"b\\c");
  EXPECT_TRUE(text.ends_with("\n# EOF\n"));
  EXPECT_NE(text.find("horovod_rank_running{rank=\"2\",host=\"a\\\"b\\\\c\"} 1\n"), std::string::npos);
}

}  // namespace
}  // namespace hvd::observe
