// A driver whose events are short calls and whose actions are short texts:
//   Job job({.np = 2});
//   EXPECT_EQ(job.hosts("a:1 b:1"), "start 1 a/0, start 2 b/0");
//   EXPECT_EQ(job.ready({1, 2}), "generation 1: 1@a 2@b");
#pragma once

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "base/joined.h"
#include "elastic/discovery.h"
#include "elastic/driver.h"

namespace hvd::elastic {

inline uint64_t number(WorkerId id) { return static_cast<uint64_t>(id); }

inline std::string text_of(const StartWorker& each) {
  return fmt::format("start {} {}/{}", number(each.id), each.host, each.slot);
}
inline std::string text_of(const StopWorker& each) { return fmt::format("stop {}", number(each.id)); }
inline std::string text_of(const StopAll&) { return "stop all"; }
inline std::string text_of(const NotifyWorkers& each) {
  std::vector<uint64_t> ids;
  for (WorkerId id : each.ids) ids.push_back(number(id));
  const char* names[] = {"", "removed", "added", "mixed"};
  return fmt::format("notify {}: {}", joined(ids, " "), names[static_cast<int>(each.change)]);
}
inline std::string text_of(const AssignGeneration& each) {
  std::string text = fmt::format("generation {}:", static_cast<uint64_t>(each.generation));
  for (const Place& place : each.places) text += fmt::format(" {}@{}", number(place.id), place.host);
  return text;
}
inline std::string text_of(const LeaveWorker& each) { return fmt::format("leave {}", number(each.id)); }
inline std::string text_of(const Say& each) { return "say: " + each.text; }
inline std::string text_of(const Fail& each) { return "fail: " + each.reason; }
inline std::string text_of(const Finish& each) { return fmt::format("finish {}", each.exit_code); }
inline std::string text_of(const Action& action) {
  return std::visit([](const auto& each) { return text_of(each); }, action);
}

class Job {
 public:
  explicit Job(Settings settings = {}) : driver(settings, TimePoint(seconds(1000))) {
    EXPECT_EQ(check(settings).message(), "");
  }

  std::string on(const Event& event) {
    std::vector<Action> actions;
    driver.on(event, now, actions);
    std::vector<std::string> texts;
    for (const Action& action : actions) {
      if (const Say* line = std::get_if<Say>(&action))
        said.push_back(line->text);
      else
        texts.push_back(text_of(action));
      if (const AssignGeneration* table = std::get_if<AssignGeneration>(&action)) last = *table;
      if (const NotifyWorkers* notice = std::get_if<NotifyWorkers>(&action)) timestamps.push_back(notice->timestamp);
    }
    return joined(texts, ", ");
  }

  std::string hosts(std::string text) {
    for (char& letter : text) letter = letter == ' ' ? '\n' : letter;
    return on(HostsDiscovered{parse_discovery(text, 1).hosts});
  }
  std::string ready(std::initializer_list<uint64_t> ids) {
    std::vector<std::string> texts;
    for (uint64_t id : ids) {
      if (std::string text = on(WorkerReady{WorkerId{id}}); !text.empty()) texts.push_back(text);
    }
    return joined(texts, ", ");
  }
  std::string accuses(uint64_t id, int rank) { return on(WorkerReady{WorkerId{id}, rank}); }
  std::string exits(uint64_t id, int code = 0) { return on(WorkerExited{WorkerId{id}, code}); }
  std::string killed(uint64_t id) { return on(WorkerExited{.id = WorkerId{id}, .signal = 9}); }
  std::string leaving(uint64_t id) { return on(WorkerLeaving{WorkerId{id}, "SIGTERM"}); }

  // Everything that the timers bring within this time.
  std::string pass(double duration) {
    TimePoint end = now + seconds(duration);
    std::vector<std::string> texts;
    while (driver.next_timer() <= end) {
      now = std::max(now, driver.next_timer());
      if (std::string text = on(Timer{}); !text.empty()) texts.push_back(text);
    }
    now = end;
    return joined(texts, ", ");
  }

  Driver driver;
  TimePoint now{seconds(1000)};
  std::vector<std::string> said;
  std::vector<double> timestamps;
  AssignGeneration last;
};

// One worker on each of three hosts, at work.
inline Job three_hosts(Settings settings = {.np = 3, .min_np = 2}) {
  Job job(settings);
  EXPECT_EQ(job.hosts("a b c"), "start 1 a/0, start 2 b/0, start 3 c/0");
  EXPECT_EQ(job.ready({1, 2, 3}), "generation 1: 1@a 2@b 3@c");
  EXPECT_EQ(job.driver.waiting_for(), "");
  EXPECT_EQ(job.driver.next_timer(), kNever);
  return job;
}

}  // namespace hvd::elastic
