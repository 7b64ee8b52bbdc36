// Kills a process in the middle of its work. For the tests of files that must be valid at that moment.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

namespace hvd {

// Runs work(started) in a child, which calls started() and goes on; so much later it is killed. Call it within
// ASSERT_NO_FATAL_FAILURE. `started` is false if the parent is gone.
template <class Work>
void kill_while_working(std::chrono::microseconds later, const Work& work) {
  std::array<int, 2> begun{};
  ASSERT_EQ(::pipe(begun.data()), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that fails leaves nothing behind
    work([&] { return ::write(begun[1], "", 1) == 1; });
    ::_exit(1);
  }
  ::close(begun[1]);  // a child that ends early is seen
  char byte = 1;
  ASSERT_EQ(::read(begun[0], &byte, 1), 1);
  std::this_thread::sleep_for(later);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ::close(begun[0]);
}

}  // namespace hvd
