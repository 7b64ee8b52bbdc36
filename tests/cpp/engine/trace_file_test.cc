#include "engine/trace_file.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "engine/killed_writer.h"
#include "engine/temporary_directory.h"
#include "support/effort.h"

namespace hvd {
namespace {

using Json = nlohmann::json;

std::string event_of_size(size_t size, int number) {
  std::string event = fmt::format(R"({{"n":{},"pad":""}})", number);
  return size <= event.size() ? event : event.insert(event.size() - 2, std::string(size - event.size(), 'x'));
}

Json read_json(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file);  // throws if it is invalid
}

TEST(TraceFile, IsCompleteAfterEveryFlushWhateverTheSizesOfTheEvents) {
  TemporaryDirectory directory;
  std::string path = directory.file("trace.json");
  auto file = TraceFile::create(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  std::mt19937 random(3);
  for (int number = 0; number < 300; number++) {
    size_t size = number % 10 == 0 ? TraceFile::kMaxEventBytes : random() % 1500;
    ASSERT_TRUE((*file)->append(event_of_size(size, number)).ok());
    if (random() % 3 == 0) continue;
    ASSERT_TRUE((*file)->flush().ok());
    Json events = read_json(path);
    ASSERT_EQ(events.size(), number + 1);
    ASSERT_EQ(events.back().at("n"), number);
  }
}

TEST(TraceFile, EventsThatFillTheirPageToTheLastByteAreKept) {
  TemporaryDirectory directory;
  std::string path = directory.file("trace.json");
  for (size_t spare = 0; spare < 8; spare++) {
    auto file = TraceFile::create(path);
    for (int number = 0; number < 6; number++) {
      ASSERT_TRUE((*file)->append(event_of_size((TraceFile::kPage - spare) / 2 - 2, number)).ok());
      ASSERT_TRUE((*file)->flush().ok());
      ASSERT_EQ(read_json(path).size(), number + 1) << spare;
    }
  }
}

TEST(TraceFile, AnUnopenablePathIsAnError) {
  TemporaryDirectory directory;
  auto file = TraceFile::create(directory.file("missing/trace.json"));
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.status().message().find("missing/trace.json: No such file"), std::string_view::npos);
}

TEST(TraceFile, AFullDiskIsAnError) {
  auto file = TraceFile::create("/dev/full");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->append("{}").ok());
  EXPECT_NE((*file)->flush().message().find("No space left"), std::string_view::npos);
}

// The child does nothing but write, mostly over page boundaries, so that the kill falls into a write.
TEST(TraceFile, IsCompleteWheneverItsWriterIsKilled) {
  TemporaryDirectory directory;
  std::string path = directory.file("trace.json");
  std::mt19937 random(11);
  for (int round = 0, rounds = test::full() ? 40 : 8; round < rounds; round++) {
    const std::chrono::microseconds moment(random() % 3000);
    ASSERT_NO_FATAL_FAILURE(kill_while_working(moment, [&path](const auto& started) {
      auto file = TraceFile::create(path);
      for (int number = 0; file.ok(); number++) {
        if (!(*file)->append(event_of_size(1300 + number % 50, number)).ok() || !(*file)->flush().ok()) return;
        if (number == 0 && !started()) return;
      }
    }));
    Json events = read_json(path);
    ASSERT_GE(events.size(), 1u);
    EXPECT_EQ(events.back().at("n"), events.size() - 1);
  }
}

}  // namespace
}  // namespace hvd
