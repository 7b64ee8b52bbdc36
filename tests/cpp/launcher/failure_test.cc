#include "launcher/workers/failure.h"

#include <gmock/gmock.h>
#include <signal.h>

namespace hvd::launcher {
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

Failure lost(int rank, int whom, OriginKind kind = OriginKind::exception) {
  Failure failure = failed(Kind::exit, rank);
  failure.pid = 100 + rank;
  failure.report = EndReport{.rank = rank, .origin = {.kind = kind, .rank = whom, .host = "c", .pid = 4711}};
  return failure;
}

Failure raised(int rank) {
  Failure failure = lost(rank, rank);
  failure.report->origin.host = "b";
  return failure;
}

TEST(Failure, ARankThatOthersHaveLostIsTheCause) {
  EXPECT_EQ(find_cause({lost(0, 1), lost(2, 1), raised(1)}).rank, 1);
  EXPECT_EQ(find_cause({lost(0, 1), failed(Kind::signal, 3, SIGSEGV), raised(1)}).rank, 1) << "3 crashed while it left";
  EXPECT_EQ(find_cause({lost(0, 1), failed(Kind::exit, 1, 3)}).ended.ending.number, 3) << "it said nothing, and ended";
  EXPECT_EQ(find_cause({lost(0, 2), lost(2, 1), raised(1)}).rank, 1) << "of a chain, its beginning";
  EXPECT_EQ(find_cause({raised(3), raised(1)}).rank, 3) << "they failed by themselves: the first";
}

TEST(Failure, AHostThatIsLostIsTheCauseWhereItsRankIsLost) {
  Failure host = failed(Kind::host_lost, -1);
  host.host = "c";
  host.pid = -1;
  EXPECT_EQ(find_cause({lost(0, 1, OriginKind::lost), host}).kind, Kind::host_lost);
}

TEST(Failure, ACauseThatDidNotEndBadlyIsDescribedAsOthersTellIt) {
  Failure cause = find_cause({lost(0, 1, OriginKind::exit), lost(2, 1, OriginKind::exit)});
  EXPECT_EQ(describe(cause, TimePoint(std::chrono::seconds(10))),
            "rank 1 on c exited: pid 4711, 2.0 s after the start");
  EXPECT_THAT(hint_for(cause, {}), HasSubstr("hvd.join()"));
  cause = find_cause({lost(0, 1, OriginKind::silent)});
  EXPECT_THAT(describe(cause, cause.when), HasSubstr("rank 1 on c fell silent: pid 4711"));
}

TEST(Failure, RanksThatFailedInTurnDoNotSendTheSearchInCircles) {
  EXPECT_EQ(find_cause({lost(0, 1), lost(1, 0)}).kind, Kind::exit);
}

TEST(Failure, OnlyACauseThatIsAboutToEndIsAwaited) {
  EXPECT_EQ(awaited_rank(*lost(0, 1).report), 1);
  EXPECT_EQ(awaited_rank(*lost(0, 1, OriginKind::lost).report), 1);
  EXPECT_EQ(awaited_rank(*lost(0, 1, OriginKind::silent).report), -1);
  EXPECT_EQ(awaited_rank(*raised(1).report), 1);
  EXPECT_EQ(awaited_rank({.rank = 1, .origin = {.kind = OriginKind::exit, .rank = 1}}), -1);
}

TEST(Failure, RanksAreNamedInShort) {
  EXPECT_EQ(name_ranks({3}), "rank 3");
  EXPECT_EQ(name_ranks({3, 0, 2}), "ranks 0, 2, 3");
  EXPECT_THAT(name_ranks(std::vector<int>(40, 1)), HasSubstr(" and 24 more"));
}

TEST(Failure, IsDescribedWithPlaceAndTime) {
  TimePoint began{std::chrono::seconds(10)};
  EXPECT_EQ(describe(failed(Kind::exit, 3, 4), began), "rank 3 on b failed: pid 7, exit code 4, 2.0 s after the start");
  EXPECT_THAT(describe(failed(Kind::signal, 3, SIGSEGV), began), HasSubstr("killed by SIGSEGV (exit code 139)"));
}

TEST(Failure, OfReportsAloneTheOneThatOthersNameIsTheCause) {
  EXPECT_EQ(summary_of({}), "");
  Origin bad{.kind = OriginKind::exception, .rank = 1, .host = "b", .pid = 7, .type = "ValueError", .text = "bad"};
  Origin other{.kind = OriginKind::exception, .rank = 3, .host = "a", .pid = 9, .type = "KeyError", .text = "x"};
  EndReport own{.rank = 1, .origin = bad}, second{.rank = 3, .origin = other};
  std::vector<EndReport> lost{{.rank = 0, .origin = bad}, {.rank = 2, .origin = bad}};
  EXPECT_EQ(summary_of({lost[0], own, lost[1]}),
            "horovodrun: rank 1 on b raised ValueError: bad: pid 7\nAfter that: ranks 0, 2 lost it.\n");
  EXPECT_EQ(summary_of({lost[0], lost[1]}), summary_of({lost[0], own, lost[1]}));  // it could not say so itself
  EXPECT_EQ(summary_of({lost[0], own, second}),
            "horovodrun: rank 1 on b raised ValueError: bad: pid 7\n"
            "After that: rank 0 lost it, rank 3 raised KeyError: x.\n");
}

TEST(Failure, ThatOneLostItThroughAnotherLeadsToTheFirst) {
  Origin lost{.kind = OriginKind::lost, .rank = 2, .host = "a", .pid = 8};
  Origin bad{.kind = OriginKind::exception, .rank = 1, .host = "b", .pid = 7, .type = "ValueError", .text = "bad"};
  EXPECT_EQ(cause_in({{.rank = 0, .origin = lost}, {.rank = 2, .origin = bad}}).rank, 1);
}

TEST(Failure, KnownCausesHaveHints) {
  Failure killed = failed(Kind::signal, 0, SIGKILL);
  EXPECT_THAT(hint_for(killed, {}), HasSubstr("dmesg on b"));
  killed.ended.out_of_memory = true;
  EXPECT_THAT(hint_for(killed, {}), HasSubstr("memory ran out"));
  EXPECT_THAT(hint_for(failed(Kind::exit, 0), {"x", "ModuleNotFoundError: No module named 'torch'", "y"}),
              HasSubstr("cannot find the module torch"));
  EXPECT_THAT(hint_for(failed(Kind::exit, 0, 127), {}), HasSubstr("not found"));
  EXPECT_EQ(hint_for(failed(Kind::exit, 0, 1), {"ValueError: no"}), "");
  Failure missing = failed(Kind::not_started, 0);
  missing.reason = "cannot run train: No such file or directory";
  EXPECT_THAT(hint_for(missing, {}), HasSubstr("installed on b"));
}

}  // namespace
}  // namespace hvd::launcher
