#include "launcher/failure.h"

#include <gmock/gmock.h>
#include <signal.h>

namespace hvd {
namespace {

using testing::HasSubstr;
using Kind = Failure::Kind;

Failure failed(Kind kind, int rank, int number = 1) {
  bool signalled = kind == Kind::signal;
  return {.kind = kind,
          .host = "b",
          .rank = rank,
          .pid = 7,
          .ended = {.ending = {.signalled = signalled, .number = number}},
          .when = TimePoint(std::chrono::seconds(12))};
}

TEST(Failure, AmongEqualsTheFirstIsTheCause) {
  EXPECT_EQ(find_cause({failed(Kind::exit, 3), failed(Kind::exit, 1)}).rank, 3);
  EXPECT_EQ(find_cause({failed(Kind::signal, 2), failed(Kind::signal, 1)}).rank, 2);
}

TEST(Failure, ARankThatWasKilledIsTheCauseOfOthersThatFail) {
  EXPECT_EQ(find_cause({failed(Kind::exit, 3), failed(Kind::signal, 1, SIGKILL), failed(Kind::exit, 2)}).rank, 1);
}

TEST(Failure, ALostHostIsTheCauseOfAll) {
  EXPECT_EQ(find_cause({failed(Kind::exit, 3), failed(Kind::signal, 1), failed(Kind::host_lost, -1)}).rank, -1);
}

TEST(Failure, AHostThatDoesNotStopIsNotTheCauseOfTheStop) {
  EXPECT_EQ(find_cause({failed(Kind::exit, 3), failed(Kind::host_stuck, -1)}).rank, 3);
}

TEST(Failure, IsDescribedWithPlaceAndTime) {
  TimePoint began{std::chrono::seconds(10)};
  EXPECT_EQ(describe(failed(Kind::exit, 3, 4), began), "rank 3 on b failed: pid 7, exit code 4, 2.0 s after the start");
  EXPECT_THAT(describe(failed(Kind::signal, 3, SIGSEGV), began), HasSubstr("killed by SIGSEGV (exit code 139)"));
}

TEST(Failure, KnownCausesHaveHints) {
  Failure killed = failed(Kind::signal, 0, SIGKILL);
  EXPECT_THAT(hint_for(killed, {}), HasSubstr("dmesg on b"));
  killed.ended.out_of_memory = true;
  EXPECT_THAT(hint_for(killed, {}), HasSubstr("memory ran out"));
  EXPECT_THAT(hint_for(failed(Kind::exit, 0), {"x", "ModuleNotFoundError: No module named 'torch'", "y"}),
              HasSubstr("does not find the module torch"));
  EXPECT_THAT(hint_for(failed(Kind::exit, 0, 127), {}), HasSubstr("not found"));
  EXPECT_EQ(hint_for(failed(Kind::exit, 0, 1), {"ValueError: no"}), "");
  Failure missing = failed(Kind::not_started, 0);
  missing.reason = "cannot run train: No such file or directory";
  EXPECT_THAT(hint_for(missing, {}), HasSubstr("installed on b"));
}

}  // namespace
}  // namespace hvd
