#include "base/watchdog.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace hvd {
namespace {

TEST(WatchdogDeathTest, EndsTheProcessWithTheCauseWhenACallDoesNotReturn) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Watchdog watchdog(Clock::now() + std::chrono::milliseconds(10), "the other one never came");
        for (;;) ::pause();
      },
      testing::ExitedWithCode(1), "the other one never came");
}

TEST(WatchdogDeathTest, LeavesTheProcessAloneWhenTheCallReturns) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        { Watchdog watchdog(Clock::now() + std::chrono::minutes(10), "too late"); }
        { Watchdog watchdog(kNever, "too late"); }
        ::_exit(0);
      },
      testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace hvd
