// Real programs that misbehave while their output is captured.
#include "launcher/processes/capture.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "base/number.h"

namespace hvd::launcher {
namespace {

using namespace std::chrono_literals;

Result<Captured> say(std::string script, Duration patience = 100s) {
  return capture({"sh", "-c", std::move(script)}, patience);
}

TEST(Capture, TakesOutputAndEnding) {
  auto said = say("echo out; echo err >&2; exit 3");
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(said->out, "out\n");
  EXPECT_EQ(said->err, "err\n");
  EXPECT_EQ(said->ending.code(), 3);
}

TEST(Capture, StdinIsEmpty) { EXPECT_EQ(say("cat; echo end")->out, "end\n"); }

TEST(Capture, WhatAProgramLeavesBehindIsNotWaitedForAndKilled) {
  auto said = say("sleep 1000 & echo $!");
  ASSERT_TRUE(said.ok()) << said.status().message();
  pid_t left = read_number<int>(said->out.substr(0, said->out.size() - 1)).value();
  TimePoint deadline = Clock::now() + 100s;
  while (::kill(left, 0) == 0 && Clock::now() < deadline) {
    std::string state = output_of({"ps", "-o", "state=", "-p", std::to_string(left)}, 100s);
    if (state.empty() || state[0] == 'Z') return;
  }
  EXPECT_NE(::kill(left, 0), 0);
}

TEST(Capture, AProgramThatNeverStopsTalkingTakesNoMemory) {
  auto said = say("head -c 20000000 /dev/zero");
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(said->out.size(), size_t{4} << 20);
  EXPECT_EQ(say("exec yes", 100ms).status().code(), Code::timed_out);
}

TEST(Capture, AProgramThatTakesTooLongIsAnError) {
  EXPECT_EQ(say("exec sleep 1000", 100ms).status().code(), Code::timed_out);
  EXPECT_EQ(say("exec >&- 2>&-; exec sleep 1000", 100ms).status().code(), Code::timed_out);
}

}  // namespace
}  // namespace hvd::launcher
