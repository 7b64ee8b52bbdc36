// Real processes. Each test runs in a process of its own (ctest), which adopts what the workers leave.
#include "launcher/workers/crew.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <map>

#include "launcher/processes/guard.h"
#include "launcher/processes/signals.h"

namespace hvd::launcher {
namespace {

using testing::ElementsAre;

class Recorder : public HostEvents {
 public:
  void on_started(int rank, pid_t pid) override { pids[rank] = pid; }
  void on_not_started(int rank, std::string_view reason) override { not_started[rank] = reason; }
  void on_output(int rank, WorkerStream stream, std::string_view bytes) override {
    (stream == WorkerStream::out ? out : err)[rank] += bytes;
  }
  void on_output_end(int, WorkerStream) override { ends++; }
  void on_report(int rank, const EndReport& report) override { reports[rank] = report; }
  void on_observed(uint64_t id, std::string_view json) override { observed[id] = json; }
  void on_ended(int rank, const Ended& end) override { ended[rank] = end; }
  void on_notice(std::string_view text) override { notices.emplace_back(text); }
  void on_empty() override { empty++; }
  void on_lost(std::string_view, bool) override { FAIL(); }

  std::map<int, pid_t> pids;
  std::map<int, std::string> out, err, not_started;
  std::map<int, Ended> ended;
  std::map<int, EndReport> reports;
  std::vector<std::string> notices;
  std::map<uint64_t, std::string> observed;
  int ends = 0, empty = 0;
};

class CrewTest : public testing::Test {
 protected:
  void SetUp() override {
    sigset_t signals;
    ::sigemptyset(&signals);
    ::sigaddset(&signals, SIGCHLD);
    for (int signal : kStopSignals) ::sigaddset(&signals, signal);
    ::sigprocmask(SIG_BLOCK, &signals, nullptr);
    adopt_orphans();
    signals_.emplace(std::move(*Signals::create()));
  }

  void TearDown() override {
    crew_.kill();
    drive([&] { return events_.empty > 0; });
    EXPECT_TRUE(descendants().empty());
  }

  void work(std::string script) { crew_.set_work({.command = {"sh", "-c", std::move(script)}}); }
  void start(int rank) { crew_.start({.worker = rank, .variables = {{"RANK", std::to_string(rank)}}}); }

  template <class Condition>
  void drive(const Condition& is_done) {
    PollSet set;
    while (!is_done()) {
      crew_.add_to(set);
      signals_->add_to(set);
      set.wait();
      signals_->reap([&](pid_t pid, int status) { crew_.on_reaped(pid, status); });
      crew_.look();
    }
  }

  Recorder events_;
  std::set<pid_t> strangers_;
  std::optional<Signals> signals_;
  Crew crew_{events_, strangers_};
};

TEST_F(CrewTest, ReportsOutputAndEndings) {
  work("echo out $RANK; echo err >&2; exit $RANK");
  start(0);
  start(3);
  drive([&] { return events_.ended.size() == 2 && events_.ends == 4; });
  EXPECT_EQ(events_.out[3], "out 3\n");
  EXPECT_EQ(events_.err[0], "err\n");
  EXPECT_EQ(events_.ended[3].ending.code(), 3);
  EXPECT_FALSE(events_.ended[3].was_stopped);
  EXPECT_EQ(events_.empty, 0);  // not requested
  crew_.stop();
  drive([&] { return events_.empty == 1; });
}

TEST_F(CrewTest, OneWorkerIsStoppedWithAllItStartedAndTheOthersGoOn) {
  work("setsid sleep 1000 & echo $!; wait");
  start(0);
  start(1);
  drive([&] { return events_.out.size() == 2; });
  pid_t child = std::stoi(events_.out[0]), other = std::stoi(events_.out[1]);
  crew_.stop(0);
  drive([&] { return events_.ended.contains(0) && ::kill(child, 0) != 0; });
  EXPECT_TRUE(events_.ended[0].was_stopped);
  EXPECT_FALSE(events_.ended.contains(1));
  EXPECT_EQ(::kill(other, 0), 0);
  start(2);  // a slot that is free again
  drive([&] { return events_.out.contains(2); });
}

TEST_F(CrewTest, KilledByOthersIsNotStoppedByUs) {
  work("echo up; read line < /dev/zero");
  start(0);
  drive([&] { return events_.out.contains(0); });
  ::kill(events_.pids[0], SIGSEGV);
  drive([&] { return events_.ended.contains(0); });
  EXPECT_FALSE(events_.ended[0].was_stopped);
}

TEST_F(CrewTest, WhatIsHeldStaysInThePipe) {
  work("echo out; echo err >&2");
  crew_.hold_output(WorkerStream::out, true);
  start(0);
  drive([&] { return events_.ended.contains(0) && events_.err.contains(0); });
  EXPECT_FALSE(events_.out.contains(0));
  crew_.hold_output(WorkerStream::out, false);
  drive([&] { return events_.out[0] == "out\n"; });
}

TEST_F(CrewTest, StrangersAreLeftAlone) {
  auto stranger = spawn({.command = {"sleep", "1000"}});
  ASSERT_TRUE(stranger.ok());
  strangers_.insert(stranger->pid);
  crew_.kill();
  drive([&] { return events_.empty == 1; });
  EXPECT_EQ(::kill(stranger->pid, 0), 0);
  strangers_.clear();
  ::kill(stranger->pid, SIGKILL);
  drive([&] { return descendants().empty(); });
}

TEST_F(CrewTest, AProgramThatIsNotThereAndADirectoryThatIsNotThereAreTold) {
  crew_.set_work({.command = {"/no/such/program"}, .directory = "/no/such/directory"});
  ASSERT_EQ(events_.notices.size(), 1u);
  EXPECT_THAT(events_.notices[0], testing::HasSubstr("no directory /no/such/directory"));
  start(0);
  EXPECT_THAT(events_.not_started[0], testing::HasSubstr("cannot run /no/such/program: No such file"));
}

}  // namespace
}  // namespace hvd::launcher
