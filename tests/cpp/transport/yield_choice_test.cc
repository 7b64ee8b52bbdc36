#include "transport/yield_choice.h"

#include <gtest/gtest.h>

namespace hvd {
namespace {

using namespace std::chrono_literals;

class YieldChoiceTest : public ::testing::Test {
 protected:
  void yield(Duration duration) {
    choice_.took(now_, now_ + duration);
    now_ += duration;
  }
  // How long it does not try again after the recorded times.
  Duration pause() {
    TimePoint began = now_;
    while (!choice_.is_worth_it(now_)) now_ += 1ms;
    return now_ - began;
  }

  YieldChoice choice_;
  TimePoint now_{1000s};
};

TEST_F(YieldChoiceTest, YieldsToPeersThatAreQuick) {
  for (int i = 0; i < 1000; i++) yield(20us);
  EXPECT_TRUE(choice_.is_worth_it(now_));
}

TEST_F(YieldChoiceTest, PausesForLongerEachTimeThatAYieldIsLong) {
  yield(4ms);
  EXPECT_EQ(pause(), 50ms);
  yield(4ms);
  EXPECT_EQ(pause(), 100ms);
  for (int i = 0; i < 10; i++) {
    yield(4ms);
    pause();
  }
  yield(4ms);
  EXPECT_EQ(pause(), 2s);
}

TEST_F(YieldChoiceTest, AFewShortYieldsBesideBusyProgramsAreNoProof) {
  yield(4ms);
  pause();
  for (int i = 0; i < 10; i++) yield(20us);
  yield(4ms);
  EXPECT_EQ(pause(), 100ms);
}

TEST_F(YieldChoiceTest, ForgetsWhenTheOthersAreGone) {
  for (int i = 0; i < 10; i++) {
    yield(4ms);
    pause();
  }
  for (int i = 0; i < 64; i++) yield(20us);
  yield(4ms);
  EXPECT_EQ(pause(), 50ms);
}

}  // namespace
}  // namespace hvd
