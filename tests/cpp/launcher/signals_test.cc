#include "launcher/processes/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "launcher/processes/guard.h"

namespace hvd::launcher {
namespace {

// Blocks what Signals reads, as the launcher's guard does.
class SignalsTest : public testing::Test {
 protected:
  void SetUp() override {
    sigset_t blocked;
    ::sigemptyset(&blocked);
    for (int signal : kStopSignals) ::sigaddset(&blocked, signal);
    ::sigaddset(&blocked, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &blocked, &before_);
  }
  void TearDown() override { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

  // Waits for signals alone; would never return if none were there to be taken.
  void wait() {
    PollSet set;
    signals_.add_to(set);
    set.wait();
  }

  pid_t end_a_child() {
    pid_t pid = ::fork();
    if (pid == 0) ::_exit(7);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
    return pid;
  }

  sigset_t before_{};
  Signals signals_ = std::move(*Signals::create());
};

TEST_F(SignalsTest, SignalsAreTakenOnce) {
  EXPECT_TRUE(signals_.take_stop_signals().empty());
  ::raise(SIGTERM);
  ::raise(SIGINT);
  wait();
  auto taken = signals_.take_stop_signals();
  EXPECT_EQ(std::set<int>(taken.begin(), taken.end()), (std::set<int>{SIGINT, SIGTERM}));
  EXPECT_TRUE(signals_.take_stop_signals().empty());
}

TEST_F(SignalsTest, AllEndedChildrenAreReaped) {
  std::set<pid_t> ended = {end_a_child(), end_a_child()}, reaped;
  wait();
  signals_.reap([&](pid_t pid, int status) {
    reaped.insert(pid);
    EXPECT_EQ(WEXITSTATUS(status), 7);
  });
  EXPECT_EQ(reaped, ended);
}

// An event loop polls one, then the other: an event in between must end its next wait.
TEST_F(SignalsTest, AStopThatComesBeforeReapingEndsTheNextWait) {
  EXPECT_TRUE(signals_.take_stop_signals().empty());
  ::raise(SIGTERM);
  signals_.reap([](pid_t, int) { FAIL(); });
  wait();
  EXPECT_EQ(signals_.take_stop_signals(), std::vector<int>{SIGTERM});
}

TEST_F(SignalsTest, AChildThatEndsBeforeStopsAreAskedForEndsTheNextWait) {
  pid_t ended = end_a_child(), reaped = 0;
  EXPECT_TRUE(signals_.take_stop_signals().empty());
  wait();
  signals_.reap([&](pid_t pid, int) { reaped = pid; });
  EXPECT_EQ(reaped, ended);
}

}  // namespace
}  // namespace hvd::launcher
