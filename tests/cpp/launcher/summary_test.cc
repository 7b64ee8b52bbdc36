#include "launcher/job/summary.h"

#include <gmock/gmock.h>
#include <signal.h>

namespace hvd::launcher {
namespace {

using testing::HasSubstr;
using testing::Not;
using Kind = Failure::Kind;

const TimePoint kStart(std::chrono::seconds(100));

Failure exited(int rank, int code = 3) {
  return {.kind = Kind::exit,
          .host = "b",
          .rank = rank,
          .pid = 4711,
          .ended = {.ending = {.number = code}},
          .when = kStart + std::chrono::seconds(2)};
}

Aftermath lost(int rank, int whom) {
  EndReport report{.rank = rank, .origin = {.kind = OriginKind::exception, .rank = whom, .host = "b"}};
  return {.rank = rank, .report = report, .ending = Ending{.number = 1}};
}

TEST(Summary, OfAStaticJobBeginsWithTheCause) {
  FailedJob job{.dump = "What every rank was doing: horovodrun --explain f",
                .cause = exited(1),
                .after = {lost(0, 1), lost(2, 1)},
                .last_lines = {"first", "second"},
                .stopped = 3,
                .hosts = 2,
                .began = kStart};
  EXPECT_EQ(summary_of(job),
            "horovodrun: rank 1 on b failed: pid 4711, exit code 3, 2.0 s after the start; the job was stopped with 3 "
            "ranks still running\n"
            "After that: ranks 0, 2 lost it.\n"
            "What every rank was doing: horovodrun --explain f\n"
            "The last lines of its stderr:\n    first\n    second\n");
}

TEST(Summary, OfAnElasticJobBeginsWithTheReasonAndNamesTheCause) {
  FailedJob job{.reason = "the reset limit of 0 is reached",
                .cause = exited(1),
                .after = {lost(0, 1), lost(2, 1)},
                .last_lines = {"first"},
                .began = kStart};
  EXPECT_EQ(summary_of(job),
            "horovodrun: the reset limit of 0 is reached\n"
            "The last failure: rank 1 on b failed: pid 4711, exit code 3, 2.0 s after the start\n"
            "After that: ranks 0, 2 lost it.\n"
            "The last lines of its stderr:\n    first\n");
}

TEST(Summary, AReasonWithoutAFailureIsAll) {
  EXPECT_EQ(summary_of({.reason = "waited 600 s for 4 slots"}), "horovodrun: waited 600 s for 4 slots\n");
}

TEST(Summary, OwnWordsHintAndAftermathComeInThisOrder) {
  FailedJob job{.cause = exited(1, 127), .after = {lost(0, 1)}, .was_silent = true, .began = kStart};
  job.cause->report =
      EndReport{.rank = 1, .origin = {.kind = OriginKind::exception, .rank = 1, .type = "KeyError", .text = "1"}};
  std::string text = summary_of(job);
  std::vector<size_t> places;
  for (const char* part : {"exit code 127", "\nIt raised KeyError: 1\n", "\nHint: ", "\nAfter that: rank 0 lost it.\n",
                           "\nIt wrote nothing to stderr.\n"}) {
    EXPECT_THAT(text, HasSubstr(part));
    places.push_back(text.find(part));
  }
  EXPECT_TRUE(std::is_sorted(places.begin(), places.end())) << text;
}

TEST(Summary, WhatCouldNotBeStartedOnOneHostIsToldInOneLine) {
  FailedJob job{.cause = Failure{.kind = Kind::not_started, .host = "b", .rank = 0, .reason = "cannot run /no/such"}};
  EXPECT_EQ(summary_of(job), "horovodrun: cannot run /no/such\n");
  job.hosts = 2;
  EXPECT_THAT(summary_of(job), HasSubstr("rank 0 on b was not started: cannot run /no/such"));
  job.hosts = 1;
  job.reason = "every worker failed";
  EXPECT_THAT(summary_of(job), HasSubstr("The last failure: rank 0 on b was not started"));
}

TEST(Summary, OfAHostSaysNothingAboutItsOutput) {
  FailedJob job{.cause = Failure{.kind = Kind::host_lost, .host = "b", .reason = "cut off"}, .began = kStart};
  EXPECT_THAT(summary_of(job), Not(HasSubstr("stderr")));
}

}  // namespace
}  // namespace hvd::launcher
