// Time limits that are longer than one call of poll() waits: the kernel's answer "nothing came" is then not the end.
// This file replaces poll() for the whole program, so that such a call need not be waited for.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bell.h"
#include "net/poller.h"
#include "rendezvous/parcel.h"

namespace {

thread_local int calls_that_time_out = 0;
thread_local int longest_timeout = 0;

}  // namespace

extern "C" int poll(pollfd* wanted, nfds_t count, int timeout) {
  if (calls_that_time_out > 0) {
    calls_that_time_out--;
    longest_timeout = std::max(longest_timeout, timeout);
    return 0;
  }
  timespec limit{.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1000000L};
  return static_cast<int>(
      ::syscall(SYS_ppoll, wanted, count, timeout < 0 ? nullptr : &limit, nullptr, static_cast<size_t>(_NSIG / 8)));
}

namespace hvd {
namespace {

using namespace std::chrono_literals;

// HOROVOD_START_TIMEOUT=2000 ended after 1,000 s, with the first call of poll() that returned.
TEST(LongWait, IsNotOverWhenOneCallOfPollIs) {
  auto bell = create_bell();
  ring(*bell);  // so that the wait ends at last, as it does when a rank arrives
  calls_that_time_out = 3;
  EXPECT_TRUE(wait_readable(*bell, Clock::now() + 2000s));
  EXPECT_EQ(calls_that_time_out, 0);
  EXPECT_GT(longest_timeout, 1'900'000);
}

TEST(LongWait, EndsWhenItsTimeHasCome) {
  auto bell = create_bell();
  EXPECT_FALSE(wait_readable(*bell, Clock::now() + 1ms));
}

TEST(LongWait, LimitsBeyondWhatPollTakesAreCutAndNeverTurnNegative) {
  EXPECT_EQ(milliseconds_until(kNever), -1);
  EXPECT_NEAR(milliseconds_until(Clock::now() + 5000s), 5'000'000, 1000);
  EXPECT_GT(milliseconds_until(Clock::now() + std::chrono::hours(24 * 365)), 1'000'000'000);
}

}  // namespace
}  // namespace hvd
