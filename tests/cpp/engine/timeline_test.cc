#include "engine/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/killed_writer.h"
#include "engine/temporary_directory.h"
#include "support/effort.h"

namespace hvd {
namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

constexpr int kQueueCapacity = 64 << 10;

class TimelineTest : public testing::Test {
 protected:
  std::unique_ptr<Timeline> create(bool mark_cycles = false, int32_t rank = 0) {
    auto timeline = Timeline::create(path_, mark_cycles, rank);
    EXPECT_TRUE(timeline.ok()) << timeline.status().message();
    return std::move(*timeline);
  }
  Json read() const {
    std::ifstream file(path_);
    return Json::parse(file);  // throws if it is invalid
  }
  // The events of a tensor's track, without its metadata.
  Json read_track(const std::string& tensor) const {
    Json events = read(), track = Json::array();
    int pid = -1;
    for (const Json& event : events) {
      if (event["ph"] == "M" && event["name"] == "process_name" && event["args"]["name"] == tensor) pid = event["pid"];
      if (event["ph"] != "M" && event["pid"] == pid) track.push_back(event);
    }
    return track;
  }

  TemporaryDirectory directory_;
  std::string path_ = directory_.file("timeline.json");
};

std::string labels_of(const Json& track) {
  std::string text;
  for (const Json& event : track) text += event["ph"].get<std::string>() + ":" + event.value("name", "") + " ";
  return text;
}

uint64_t dropped_in(const Json& events) {
  uint64_t dropped = 0;
  for (const Json& event : events) {
    if (event.value("name", "") == "DROPPED_EVENTS") dropped += event["args"]["count"].get<uint64_t>();
  }
  return dropped;
}

TEST_F(TimelineTest, OpensWithTheClockAndTheRank) {
  auto before = std::chrono::system_clock::now().time_since_epoch() / 1us;
  auto timeline = create(false, 3);
  auto after = std::chrono::system_clock::now().time_since_epoch() / 1us;
  Json events = read();  // there already
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["ph"], "M");
  EXPECT_EQ(events[0]["pid"], 0);
  EXPECT_EQ(events[0]["args"]["name"], "rank 3");
  EXPECT_GE(events[0]["args"]["start_time_since_epoch_in_micros"], before);
  EXPECT_LE(events[0]["args"]["start_time_since_epoch_in_micros"], after);
  EXPECT_EQ(events[1], Json::parse(R"({"ph":"M","name":"process_sort_index","pid":0,"args":{"sort_index":0}})"));
}

TEST_F(TimelineTest, ATensorIsATrackWithItsNegotiationAndItsActivities) {
  auto timeline = create();
  timeline->negotiate_start("grad", Kind::allreduce, false);
  timeline->negotiate_rank_ready("grad", 1);
  timeline->negotiate_rank_ready("grad", 0);
  timeline->negotiate_end("grad");
  timeline->start("grad", Kind::allreduce, false);
  timeline->activity_start("grad", "MEMCPY_IN_FUSION_BUFFER");
  timeline->activity_end("grad");
  timeline->end("grad", DType::bf16, {2, 3});
  timeline.reset();

  Json events = read();
  EXPECT_EQ(events[2], Json::parse(R"({"ph":"M","name":"process_name","pid":1,"args":{"name":"grad"}})"));
  EXPECT_EQ(events[3], Json::parse(R"({"ph":"M","name":"process_sort_index","pid":1,"args":{"sort_index":1}})"));
  Json track = read_track("grad");
  EXPECT_EQ(labels_of(track), "B:NEGOTIATE_ALLREDUCE X:1 X:0 E: B:ALLREDUCE B:MEMCPY_IN_FUSION_BUFFER E: E: ");
  EXPECT_EQ(track[1]["dur"], 0);
  EXPECT_EQ(track.back()["args"], Json::parse(R"({"dtype":"bfloat16","shape":"[2, 3]"})"));
  for (size_t i = 1; i < track.size(); i++) EXPECT_LE(track[i - 1]["ts"], track[i]["ts"]);
}

TEST_F(TimelineTest, ARecordingOfAllRanksHasSubmissionsWaitsAndPlans) {
  auto timeline = Timeline::create(path_, false, 1, TimelinePlace{.size = 2, .host = "node \"1\""});
  ASSERT_TRUE(timeline.ok());
  TimePoint begin = Clock::now();
  (*timeline)->submit("grad");
  (*timeline)->start("grad", Kind::allreduce, false, {.plan = 7, .is_cached = true});
  (*timeline)->end("grad", DType::f32, {4});
  (*timeline)->waited(begin);
  timeline->reset();

  Json events = read();
  EXPECT_EQ(events[0]["args"]["size"], 2);
  EXPECT_EQ(events[0]["args"]["host"], "node \"1\"");
  EXPECT_GT(events[0]["args"]["start_time_since_boot_in_micros"], 0);
  Json track = read_track("grad");
  EXPECT_EQ(labels_of(track), "i:SUBMIT B:ALLREDUCE E: ");
  EXPECT_EQ(track[1]["args"], Json::parse(R"({"plan":7,"cached":true})"));
  Json wait = events.back();
  EXPECT_EQ(wait["name"], "WAIT");
  EXPECT_LE(wait["ts"], track[0]["ts"]);
  EXPECT_GE(wait["ts"].get<int64_t>() + wait["dur"].get<int64_t>(), track[2]["ts"].get<int64_t>());
}

TEST_F(TimelineTest, ATimelineOfRank0AloneHasNoneOfThese) {
  auto timeline = create();
  timeline->submit("grad");
  timeline->start("grad", Kind::allreduce, false, {.plan = 7, .is_cached = true});
  timeline->end("grad", DType::f32, {4});
  timeline->waited(Clock::now());
  timeline.reset();
  EXPECT_EQ(labels_of(read_track("grad")), "B:ALLREDUCE E: ");
  for (const Json& event : read()) EXPECT_NE(event.value("name", ""), "WAIT");
}

TEST_F(TimelineTest, OperationsHaveTheirNamesAndTensorsTheirOwnTracks) {
  auto timeline = create();
  for (Kind kind : {Kind::allgather, Kind::broadcast, Kind::alltoall, Kind::reducescatter}) {
    timeline->start(name_of(kind), kind, false);
    timeline->end(name_of(kind), DType::f32, {});
  }
  timeline->negotiate_start("adasum", Kind::allreduce, true);
  timeline->negotiate_end("adasum");
  timeline->start("adasum", Kind::allreduce, true);
  timeline->end("adasum", DType::f32, {7});
  timeline.reset();
  EXPECT_EQ(labels_of(read_track("allgather")), "B:ALLGATHER E: ");
  EXPECT_EQ(labels_of(read_track("broadcast")), "B:BROADCAST E: ");
  EXPECT_EQ(labels_of(read_track("alltoall")), "B:ALLTOALL E: ");
  EXPECT_EQ(labels_of(read_track("reducescatter")), "B:REDUCESCATTER E: ");
  EXPECT_EQ(labels_of(read_track("adasum")), "B:NEGOTIATE_ADASUM E: B:ADASUM E: ");
  EXPECT_EQ(read_track("allgather").back()["args"]["shape"], "[]");
  EXPECT_EQ(read_track("adasum").back()["args"]["shape"], "[7]");
}

TEST_F(TimelineTest, CyclesAreMarkedOnlyWhenAskedFor) {
  auto timeline = create(true);
  timeline->mark_cycle();
  timeline.reset();
  Json mark = read().back();
  EXPECT_GE(mark["ts"], 0);
  mark.erase("ts");
  EXPECT_EQ(mark, Json::parse(R"({"ph":"i","name":"CYCLE_START","pid":0,"s":"g"})"));

  timeline = create(false);
  timeline->mark_cycle();
  timeline.reset();
  EXPECT_EQ(read().size(), 2u);
}

TEST_F(TimelineTest, AnyBytesMakeAName) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"a\"b\\c/d\n\t\x01", "a\"b\\c/d\n\t\x01"},
      {"gr\xc3\xb6\xc3\x9f"
       "e",
       "gr\xc3\xb6\xc3\x9f"
       "e"},
      {"bad \xff byte", "bad \xef\xbf\xbd byte"},
      {"cut \xc3", "cut \xef\xbf\xbd"},
      {std::string("nul\0nul", 7), std::string("nul\0nul", 7)},
      {"", ""},
      {std::string(100000, '\x02'), std::string(512, '\x02') + "..."}};
  auto timeline = create();
  for (const auto& [name, shown] : names) {
    timeline->start(name, Kind::allreduce, false);
    timeline->activity_start(name, name);
    timeline->activity_end(name);
    timeline->end(name, DType::f32, Shape(1000, INT64_MIN));
  }
  timeline.reset();
  for (const auto& [name, shown] : names) {
    EXPECT_EQ(labels_of(read_track(shown)), "B:ALLREDUCE B:" + shown + " E: E: ");
  }
}

TEST_F(TimelineTest, AnUnopenablePathIsAnError) {
  auto timeline = Timeline::create(directory_.file("missing/timeline.json"), false, 0);
  ASSERT_FALSE(timeline.ok());
  EXPECT_THAT(std::string(timeline.status().message()), testing::HasSubstr("missing/timeline.json"));
  EXPECT_FALSE(Timeline::create("/dev/full", false, 0).ok());
}

TEST_F(TimelineTest, EventsReachTheFileWhileTheTimelineIsIdle) {
  auto timeline = create();
  timeline->start("tensor", Kind::allreduce, false);
  auto deadline = Clock::now() + 60s;
  // The reader may see a partial write, which is invalid at that moment only.
  auto is_there = [&] {
    std::ifstream file(path_);
    Json events = Json::parse(file, nullptr, false);
    return events.is_array() && events.back().value("name", "") == "ALLREDUCE";
  };
  bool found = false;
  while (!(found = is_there()) && Clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(found);
}

TEST_F(TimelineTest, AClosedFileIsWholeAndStaysAsItIs) {
  std::shared_ptr<Timeline> timeline = create();
  timeline->start("tensor", Kind::allreduce, false);
  timeline->end("tensor", DType::f32, {1});
  timeline->close();
  EXPECT_EQ(labels_of(read_track("tensor")), "B:ALLREDUCE E: ");
  timeline->start("tensor", Kind::broadcast, false);  // by one that still holds it
  timeline.reset();
  EXPECT_EQ(labels_of(read_track("tensor")), "B:ALLREDUCE E: ");
}

TEST_F(TimelineTest, ASliceThatBeganBeforeTheTimelineLeavesNoTrace) {
  auto timeline = create();
  timeline->activity_end("tensor");
  timeline->end("tensor", DType::f32, {1});
  timeline->start("tensor", Kind::allreduce, false);
  timeline->end("tensor", DType::f32, {1});
  timeline->end("tensor", DType::f32, {1});
  timeline.reset();
  EXPECT_EQ(labels_of(read_track("tensor")), "B:ALLREDUCE E: ");
  EXPECT_EQ(dropped_in(read()), 0u);
}

TEST_F(TimelineTest, WhatDoesNotFitIsCountedAndTheRestStaysNested) {
  constexpr int kSlices = kQueueCapacity + 5000;  // an open slice keeps a place for its end: they cannot all fit
  auto timeline = create();
  for (int i = 0; i < kSlices; i++) timeline->activity_start("tensor", "DEEP");
  for (int i = 0; i < kSlices; i++) timeline->activity_end("tensor");
  timeline->start("tensor", Kind::broadcast, false);
  timeline->end("tensor", DType::f32, {});
  timeline.reset();

  Json events = read(), track = read_track("tensor");
  int depth = 0;
  for (const Json& event : track) {
    depth += event["ph"] == "B" ? 1 : -1;
    ASSERT_GE(depth, 0);
  }
  EXPECT_EQ(depth, 0);
  EXPECT_GE(dropped_in(events), 2u * 5000);
  EXPECT_EQ(dropped_in(events) + track.size(), 2u * kSlices + 2);
  EXPECT_GT(track.size(), 0u);
}

TEST_F(TimelineTest, NamesWithoutEndDoNotTakeMemoryWithoutEnd) {
  constexpr int kNames = (64 << 10) + 300;
  auto timeline = create();
  for (int i = 0; i < kNames; i++) timeline->negotiate_rank_ready("noname." + std::to_string(i), 0);
  timeline.reset();
  Json events = read();
  uint64_t shown = 0;
  for (const Json& event : events) shown += event["ph"] == "X";
  EXPECT_GE(dropped_in(events), 300u);
  EXPECT_EQ(dropped_in(events) + shown, static_cast<uint64_t>(kNames));
}

TEST_F(TimelineTest, ManyThreadsRecordAtOnce) {
  constexpr int kThreads = 4, kRounds = 2000;
  auto timeline = create(true);
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; thread++) {
      threads.emplace_back([&, name = "tensor." + std::to_string(thread)] {
        for (int round = 0; round < kRounds; round++) {
          timeline->start(name, Kind::allreduce, false);
          timeline->activity_start(name, "QUEUE");
          timeline->mark_cycle();
          timeline->activity_end(name);
          timeline->end(name, DType::f32, {round});
        }
      });
    }
  }
  timeline.reset();
  ASSERT_EQ(dropped_in(read()), 0u);
  for (int thread = 0; thread < kThreads; thread++) {
    Json track = read_track("tensor." + std::to_string(thread));
    ASSERT_EQ(track.size(), 4u * kRounds);
    for (int round = 0; round < kRounds; round++) {
      EXPECT_EQ(track[4 * round]["name"], "ALLREDUCE");
      EXPECT_EQ(track[4 * round + 3]["args"]["shape"], text_of(Shape{round}));
    }
  }
}

TEST_F(TimelineTest, TheFileIsValidWheneverTheProcessIsKilled) {
  std::mt19937 random(5);
  size_t most = 0;
  for (int round = 0, rounds = test::full() ? 40 : 8; round < rounds; round++) {
    const std::chrono::microseconds moment(random() % 60000);
    ASSERT_NO_FATAL_FAILURE(kill_while_working(moment, [this](const auto& started) {
      auto timeline = Timeline::create(path_, true, 0);
      if (!timeline.ok() || !started()) return;
      for (int i = 0;; i++) {
        std::string name = "tensor." + std::to_string(i % 100);
        (*timeline)->start(name, Kind::allreduce, false);
        (*timeline)->end(name, DType::f32, {i});
      }
    }));
    most = std::max(most, read().size());
  }
  EXPECT_GT(most, 100u);  // some were killed while they were writing
}

}  // namespace
}  // namespace hvd
