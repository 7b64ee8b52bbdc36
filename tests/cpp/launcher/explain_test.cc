#include "launcher/observatory/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/observatory/top.h"

namespace hvd::launcher {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kStacks = R"(Thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f2 (most recent call first):
  File "/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 633 in __next__
  File "/home/me/train.py", line 12 in epoch
  File "/home/me/train.py", line 40 in <module>
native thread 12
/lib/libc.so(+0x1)[0x1]
)";

json operation(const std::string& name, double submitted, const std::string& outcome = "pending") {
  return {{"name", name},      {"kind", "allreduce"}, {"process_set", 0},  {"submitted", submitted},
          {"agreed", nullptr}, {"done", nullptr},     {"outcome", outcome}};
}

json worker(int rank, json operations, const std::string& process = "sleeping", const std::string& stacks = "") {
  return {{"worker", rank},
          {"host", "b"},
          {"process", process},
          {"metrics", {{"rank", rank}, {"process_sets", {{"0", 1}}}}},
          {"operations", std::move(operations)},
          {"stacks", stacks}};
}

json dump(json workers) {
  return {{"format", "horovod-dump"}, {"version", 1},       {"time", 1000.0},
          {"reason", "stalled"},      {"command", "train"}, {"workers", std::move(workers)}};
}

TEST(Explain, NamesWhoNeverSubmittedAndWhereItIs) {
  json workers = {worker(0, {operation("grad.11", 958.5, "done"), operation("grad.12", 959)}),
                  worker(3, {operation("grad.11", 959, "done")}, "sleeping", kStacks)};
  auto story = explain(dump(workers).dump());
  ASSERT_TRUE(story.ok());
  EXPECT_THAT(*story, HasSubstr("rank 0 waited 41.0 s in allreduce grad.12.\n"));
  EXPECT_THAT(*story,
              HasSubstr("  rank 3 on b never submitted grad.12; it was in __next__ (dataloader.py:633), called by "
                        "epoch (train.py:12), 41.0 s after its last operation.\n"));
}

TEST(Explain, TellsAStoppedProcessFromOneThatHasEnded) {
  json ended = worker(1, json::array(), "ended");
  ended["end"] = "killed by SIGSEGV (exit code 139)";
  auto story = explain(dump({worker(0, {operation("x", 999)}), ended, worker(2, json::array(), "stopped")}).dump());
  ASSERT_TRUE(story.ok());
  EXPECT_THAT(*story, HasSubstr("rank 1 on b never submitted x; its process has ended: killed by SIGSEGV"));
  EXPECT_THAT(*story, HasSubstr("rank 2 on b never submitted x; its process was stopped"));
}

// A rank that is no member of the process set is not waited for.
TEST(Explain, KnowsTheMembersOfAProcessSet) {
  json one = operation("y", 999);
  one["process_set"] = 2;
  json member = worker(1, json::array());
  member["metrics"]["process_sets"] = {{"2", 1}};
  std::vector<Waiting> waiting = find_waiting({worker(0, {one}), member, worker(2, json::array())});
  ASSERT_EQ(waiting.size(), 1u);
  EXPECT_THAT(waiting[0].waiting, ElementsAre(0));
  EXPECT_THAT(waiting[0].missing, ElementsAre(1));
}

TEST(Explain, WhatIsBeingExecutedMissesNobody) {
  json agreed = operation("x", 999);
  agreed["agreed"] = 999.5;
  auto story = explain(dump({worker(0, {agreed}), worker(1, json::array())}).dump());
  ASSERT_TRUE(story.ok());
  EXPECT_THAT(*story, HasSubstr("allreduce x was being executed by rank 0, submitted 1.0 s before."));
}

TEST(Explain, RefusesOtherFiles) {
  for (const char* text : {"", "{", "[]", "{}", R"({"format": "horovod-dump", "version": 2})", R"({"format": 3})"})
    EXPECT_FALSE(explain(text).ok()) << text;
}

TEST(Explain, BearsFieldsOfAnyType) {
  json good = dump({worker(0, {operation("x", 1)}), worker(1, json::array())});
  for (const json& odd :
       {json(), json(3), json("x"), json(-1e300), json::array({1, json::object()}), json({{"rank", "x"}})}) {
    for (const char* name : {"workers", "time", "events", "reason"}) {
      json changed = good;
      changed[name] = odd;
      EXPECT_TRUE(explain(changed.dump()).ok()) << name << odd;
    }
    for (const char* name : {"metrics", "operations", "stacks", "process", "host", "worker"}) {
      json changed = good;
      changed["workers"][0][name] = odd;
      EXPECT_TRUE(explain(changed.dump()).ok()) << name << odd;
    }
    for (const char* name : {"name", "kind", "submitted", "agreed", "process_set", "outcome"}) {
      json changed = good;
      changed["workers"][0]["operations"][0][name] = odd;
      EXPECT_TRUE(explain(changed.dump()).ok()) << name << odd;
    }
  }
}

TEST(Top, ShowsARankInALine) {
  json status = {
      {"pid", 7},
      {"ranks", 1},
      {"time", 20.0},
      {"began", 10.0},
      {"command", "train"},
      {"workers",
       {{{"rank", 0},
         {"host", "a"},
         {"state", "running"},
         {"process", "running"},
         {"operations_per_second", 12.5},
         {"step_seconds", 0.08}}}},
      {"waiting", {{{"kind", "allreduce"}, {"name", "x"}, {"since", 19.0}, {"waiting", {0}}, {"missing", {1}}}}}};
  std::string text = top_text(status, 200);
  EXPECT_THAT(text, HasSubstr("job 7: 1 ranks, up 10 s\n"));
  EXPECT_THAT(text, HasSubstr("80.0     12.5"));
  EXPECT_THAT(text, HasSubstr("allreduce x: ranks 0 since 1.0 s, missing: 1\n"));
}

}  // namespace
}  // namespace hvd::launcher
