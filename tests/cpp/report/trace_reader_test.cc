#include "report/trace_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "engine/temporary_directory.h"
#include "report/rank_reader.h"

namespace hvd::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string head_of(int rank, int size = 2) {
  return R"({"ph":"M","name":"process_name","pid":0,"args":{"name":"rank )" + std::to_string(rank) +
         R"(","start_time_since_epoch_in_micros":1000,"start_time_since_boot_in_micros":10,"host":"a","size":)" +
         std::to_string(size) + "}}\n";
}
const std::string kOperation =
    R"(,{"ph":"M","name":"process_name","pid":1,"args":{"name":"x \"}{"}}
,{"ph":"i","name":"SUBMIT","ts":5,"pid":1,"s":"p"}
,{"ph":"B","name":"NEGOTIATE_ALLREDUCE","ts":6,"pid":1}
,{"ph":"X","name":"0","ts":7,"pid":1,"dur":0}
,{"ph":"E","ts":8,"pid":1}
,{"ph":"B","name":"ALLREDUCE","ts":9,"pid":1,"args":{"plan":1,"cached":true}}
,{"ph":"B","name":"GLOO_ALLREDUCE","ts":10,"pid":1}
,{"ph":"E","ts":11,"pid":1}
,{"ph":"E","ts":12,"pid":1,"args":{"dtype":"float16","shape":"[3, 5]"}}
,{"ph":"X","name":"WAIT","ts":6,"pid":0,"dur":7}
)";

class TraceReaderTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(directory_.file(name)) << text;
    return directory_.file(name);
  }
  Trace read(const std::string& path, size_t room = kMostRecords) {
    auto trace = read_trace(path, room);
    EXPECT_TRUE(trace.ok()) << trace.status().message();
    return trace.ok() ? std::move(*trace) : Trace();
  }
  TemporaryDirectory directory_;
};

TEST_F(TraceReaderTest, ReadsWhatTheRecorderWrites) {
  std::string path = write("all.json", "[" + head_of(0, 1) + kOperation + "]");
  Trace trace = read(path);
  EXPECT_THAT(trace.problems, ElementsAre());
  ASSERT_EQ(trace.ranks.size(), 1U);
  ASSERT_EQ(trace.ranks[0].operations.size(), 1U);
  const Operation& operation = trace.ranks[0].operations[0];
  EXPECT_EQ(trace.names[operation.name], "x \"}{");
  EXPECT_EQ(operation.submit, 5);
  EXPECT_EQ(operation.agreed, 8);
  EXPECT_EQ(operation.start, 9);
  EXPECT_EQ(operation.end, 12);
  EXPECT_EQ(operation.bytes, 30U);
  EXPECT_EQ(operation.plan, 1);
  EXPECT_TRUE(operation.is_cached);
  ASSERT_EQ(trace.ranks[0].waits.size(), 1U);
  EXPECT_EQ(trace.ranks[0].waits[0].end, 13);
  EXPECT_EQ(trace.ranks[0].marks.size(), 1U);
}

TEST_F(TraceReaderTest, AFileThatIsCutOffAnywhereIsReadUpToThere) {
  std::string whole = "[" + head_of(0, 1) + kOperation + "]";
  for (size_t length = head_of(0, 1).size() + 1; length < whole.size(); length++) {
    Trace trace = read(write("all.json", whole.substr(0, length)));
    EXPECT_THAT(trace.problems, testing::Contains(HasSubstr("cut off"))) << length;
  }
}

TEST_F(TraceReaderTest, MissingRanksAreNamed) {
  write("all.json", "[" + head_of(0, 4) + kOperation + "]");
  std::string path = write("all.rank2.json", "[" + head_of(2, 4) + kOperation + "]");
  for (const std::string& from :
       {path, directory_.file("all.json"), std::filesystem::path(path).parent_path().string()}) {
    Trace trace = read(from);
    EXPECT_EQ(trace.ranks.size(), 2U);
    EXPECT_THAT(trace.problems, ElementsAre(HasSubstr("the file of ranks 1, 3 is missing")));
  }
}

TEST_F(TraceReaderTest, FilesOfAnEarlierWorldAreLeftOut) {
  write("all.rank1.json", "[" + head_of(1, 2) + kOperation + "]");
  write("all.rank2.json", "[" + head_of(2, 3) + kOperation + "]");
  Trace trace = read(write("all.json", "[" + head_of(0, 2) + kOperation + "]"));
  EXPECT_EQ(trace.ranks.size(), 2U);
  EXPECT_THAT(trace.problems, ElementsAre(HasSubstr("of a world of 3 ranks")));
}

TEST_F(TraceReaderTest, WhatIsNoTimelineIsSaid) {
  EXPECT_THAT(std::string(read_trace(directory_.file("none.json")).status().message()), HasSubstr("none.json"));
  EXPECT_FALSE(read_trace(std::filesystem::path(directory_.file("x")).parent_path()).ok());
  for (const char* text : {"", "[]", "{}", "[1, 2]", "hello", "[{\"ph\":\"X\"}]"}) {
    auto trace = read_trace(write("all.json", text));
    EXPECT_FALSE(trace.ok()) << text;
  }
}

TEST_F(TraceReaderTest, MemoryIsBounded) {
  std::string text = "[" + head_of(0, 1);
  for (int i = 0; i < 10; i++) text += kOperation;
  Trace trace = read(write("all.json", text + "]"), 6);
  EXPECT_LE(trace.ranks[0].operations.size() + trace.ranks[0].waits.size() + trace.ranks[0].marks.size(), 6U);
  EXPECT_THAT(trace.problems, ElementsAre(HasSubstr("left out, to bound memory")));
}

TEST_F(TraceReaderTest, ObjectsThatNeverEndTakeNoMemoryAndStopNothing) {
  EventSplitter splitter;
  size_t taken = 0;
  auto take = [&](std::string_view) { taken++; };
  splitter.feed("[{\"a\":1},{\"b\":\"", take);
  for (int i = 0; i < 1000; i++) splitter.feed(std::string(1000, 'x'), take);
  splitter.feed("\"},{\"c\":2}]", take);
  EXPECT_EQ(taken, 2U);
  EXPECT_EQ(splitter.too_long(), 1U);
  EXPECT_TRUE(splitter.is_closed());
}

}  // namespace
}  // namespace hvd::report
