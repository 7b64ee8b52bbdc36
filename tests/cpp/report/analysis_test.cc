#include "report/analysis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "report/advice.h"
#include "report/render.h"

namespace hvd::report {
namespace {

using testing::HasSubstr;

// A job whose steps are all alike. Each rank computes and submits its operations one by one, then waits for all.
struct Job {
  int ranks = 2, hosts = 1, steps = 20, operations = 1;
  std::vector<int64_t> computation;  // of each rank, before each operation; microseconds
  int64_t agreement = 50, transfer = 2000;
  int64_t way = 20;            // until the root hears of a submission
  std::vector<int64_t> ahead;  // the clock of each host
  int pause_every = 0, pause_rank = 0;
  int64_t pause = 0;
};

struct Truth {
  std::vector<double> computation, hidden, transfer, rest;  // of a step without pauses, seconds
};

Operation& add_operation(RankTrace& rank, int index, int step, const Job& job) {
  rank.operations.push_back({.name = static_cast<uint32_t>(index),
                             .plan = step * job.operations + index,
                             .is_cached = step > 0,
                             .bytes = 1 << 20});
  return rank.operations.back();
}

struct Simulated {
  Trace trace;
  Truth truth;
};

Simulated simulate(const Job& job) {
  Simulated result;
  for (int i = 0; i < job.operations; i++) result.trace.names.push_back("grad." + std::to_string(i));
  result.trace.kinds = {"ALLREDUCE"};
  size_t ranks = static_cast<size_t>(job.ranks);
  auto host_of = [&](size_t rank) { return rank * static_cast<size_t>(job.hosts) / ranks; };
  for (size_t rank = 0; rank < ranks; rank++) {
    result.trace.ranks.push_back({.rank = static_cast<int32_t>(rank),
                                  .size = job.ranks,
                                  .host = std::string(1, static_cast<char>('a' + host_of(rank))),
                                  .epoch_start = 0,
                                  .boot_start = 0});
  }
  result.truth = {std::vector<double>(ranks), std::vector<double>(ranks), std::vector<double>(ranks),
                  std::vector<double>(ranks)};
  auto clock = [&](size_t rank) { return job.ahead.empty() ? 0 : job.ahead[host_of(rank)]; };
  int64_t begin = 1'000'000;
  for (int step = 0; step < job.steps; step++) {
    std::vector<int64_t> now(ranks, begin);
    bool is_pause = job.pause_every > 0 && step % job.pause_every == job.pause_every - 1;
    if (is_pause) now[static_cast<size_t>(job.pause_rank)] += job.pause;
    std::vector<int64_t> starts, ends;
    int64_t last_end = 0;
    for (int k = 0; k < job.operations; k++) {
      int64_t ready = 0;
      for (size_t rank = 0; rank < ranks; rank++) {
        now[rank] += job.computation[rank];
        ready = std::max(ready, now[rank] + (rank == 0 ? 0 : job.way));
      }
      starts.push_back(std::max(ready + job.agreement, last_end));
      ends.push_back(last_end = starts.back() + job.transfer);
      for (size_t rank = 0; rank < ranks; rank++) {
        Operation& operation = add_operation(result.trace.ranks[rank], k, step, job);
        operation.submit = now[rank] + clock(rank);
        operation.start = starts.back() + clock(rank);
        operation.end = ends.back() + clock(rank);
        if (rank == 0) operation.agreed = ready;
        auto index = static_cast<uint32_t>(result.trace.ranks[0].operations.size() - 1);
        int64_t heard = now[rank] + (rank == 0 ? 0 : job.way);
        result.trace.ranks[0].marks.push_back({.operation = index, .rank = static_cast<int32_t>(rank), .when = heard});
      }
    }
    for (size_t rank = 0; rank < ranks; rank++) {
      result.trace.ranks[rank].waits.push_back({now[rank] + clock(rank), last_end + clock(rank)});
      if (step != 0) continue;
      double hidden = 0;
      for (size_t k = 0; k < starts.size(); k++)
        hidden += static_cast<double>(std::max<int64_t>(std::min(ends[k], now[rank]) - starts[k], 0));
      double moved = static_cast<double>(job.transfer * job.operations);
      result.truth.hidden[rank] = hidden / 1e6;
      result.truth.transfer[rank] = (moved - hidden) / 1e6;
      result.truth.computation[rank] = static_cast<double>(now[rank] - begin) / 1e6;
      result.truth.rest[rank] = static_cast<double>(last_end - now[rank]) / 1e6 - result.truth.transfer[rank];
    }
    begin = last_end;
  }
  return result;
}

const Advice* find(const Findings& found, const std::string& what) {
  auto at = std::find_if(found.advice.begin(), found.advice.end(), [&](auto& advice) { return advice.what == what; });
  return at == found.advice.end() ? nullptr : &*at;
}

TEST(Report, TheTimesOfGeneratedJobsAreFound) {
  std::mt19937 random(7);
  auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  for (int round = 0; round < 300; round++) {
    SCOPED_TRACE(round);
    Job job{.ranks = static_cast<int>(pick(1, 6)), .steps = static_cast<int>(pick(5, 30))};
    job.operations = static_cast<int>(pick(1, 4));
    for (int rank = 0; rank < job.ranks; rank++) job.computation.push_back(pick(100, 20'000));
    job.agreement = pick(0, 500);
    job.transfer = pick(10, 30'000);
    Simulated simulated = simulate(job);
    Findings found = analyse(simulated.trace);
    ASSERT_EQ(found.steps.size(), static_cast<size_t>(job.steps - 1));
    for (size_t rank = 0; rank < found.ranks.size(); rank++) {
      const RankTime& time = found.ranks[rank];
      EXPECT_NEAR(time.computation, simulated.truth.computation[rank], 2e-6);
      EXPECT_NEAR(time.hidden, simulated.truth.hidden[rank], 2e-6);
      EXPECT_NEAR(time.transfer, simulated.truth.transfer[rank], 2e-6);
      EXPECT_NEAR(time.waiting + time.overhead, simulated.truth.rest[rank], 2e-6);
      EXPECT_NEAR(time.computation + time.transfer + time.waiting + time.overhead, found.step, 2e-6);
    }
    for (auto render : {render_text, render_json, render_html}) EXPECT_FALSE(render(found).empty());
  }
}

TEST(Report, AStragglerIsNamedWithWhatItCosts) {
  std::mt19937 random(11);
  for (int round = 0; round < 50; round++) {
    SCOPED_TRACE(round);
    int slow = round % 4;
    Job job{.ranks = 4, .computation = {5000, 5000, 5000, 5000}, .transfer = 300};
    auto extra = std::uniform_int_distribution<int64_t>(2000, 50'000)(random);
    job.computation[static_cast<size_t>(slow)] += extra;
    Findings found = analyse(simulate(job).trace);
    ASSERT_FALSE(found.advice.empty());
    EXPECT_EQ(found.advice.front().what, "straggler");
    EXPECT_EQ(found.advice.front().rank, slow);
    EXPECT_NEAR(found.advice.front().gain, static_cast<double>(extra) / 1e6, 50e-6);
    size_t other = slow == 0 ? 1 : 0;
    EXPECT_NEAR(found.waited[other][static_cast<size_t>(slow)], static_cast<double>(extra) / 1e6, 50e-6);
  }
}

TEST(Report, TheGainOfAStragglerEndsWhereTheNextOneIsLate) {
  Findings found = analyse(simulate({.ranks = 3, .computation = {5000, 25'000, 22'000}, .transfer = 300}).trace);
  const Advice* advice = find(found, "straggler");
  ASSERT_NE(advice, nullptr);
  EXPECT_EQ(advice->rank, 1);
  EXPECT_NEAR(advice->gain, 3000e-6, 50e-6);
}

TEST(Report, PausesAreFoundWithTheirPeriodAndRank) {
  Job job{.ranks = 3, .steps = 60, .computation = {5000, 5000, 5000}, .transfer = 300};
  job.pause_every = 4;
  job.pause_rank = 2;
  job.pause = 40'000;
  Findings found = analyse(simulate(job).trace);
  const Advice* advice = find(found, "pauses");
  ASSERT_NE(advice, nullptr);
  EXPECT_EQ(advice->rank, 2);
  EXPECT_EQ(found.pause_period, 4U);
  EXPECT_EQ(find(found, "straggler"), nullptr);
  EXPECT_NEAR(advice->gain, 0.010, 0.002);
}

TEST(Report, APauseOfAnotherRankDoesNotHideWhoPauses) {
  Job job{.ranks = 3, .steps = 60, .computation = {5000, 5000, 5000}, .transfer = 300};
  job.pause_every = 4;
  job.pause_rank = 2;
  job.pause = 40'000;
  Simulated simulated = simulate(job);
  Findings found = analyse(simulated.trace);
  found.pauses.push_back({.step = 1, .extra = 0.01, .rank = 0});
  std::vector<std::vector<double>> nobody_is_late(3, std::vector<double>(found.steps.size()));
  std::vector<Advice> all = advise(found, nobody_is_late);
  auto advice = std::find_if(all.begin(), all.end(), [](auto& each) { return each.what == "pauses"; });
  ASSERT_NE(advice, all.end());
  EXPECT_EQ(advice->rank, 2);
}

TEST(Report, WaitsBeforeTheStepsDoNotHideThatStepsDoNotWait) {
  Simulated simulated = simulate({.ranks = 2, .computation = {5000, 5000}, .transfer = 3000});
  for (RankTrace& rank : simulated.trace.ranks) rank.waits.resize(2);
  Findings found = analyse(simulated.trace);
  EXPECT_FALSE(found.has_waits);
  for (const RankTime& time : found.ranks) EXPECT_NEAR(time.transfer, 3000e-6, 50e-6);
}

TEST(Report, ASlowNetworkIsNotTakenForALateRank) {
  Findings found = analyse(
      simulate({.ranks = 4, .hosts = 2, .computation = {5000, 5000, 5000, 5000}, .transfer = 100'000, .ahead = {0, 0}})
          .trace);
  ASSERT_FALSE(found.advice.empty());
  EXPECT_EQ(found.advice.front().what, "network");
  EXPECT_EQ(find(found, "straggler"), nullptr);
  EXPECT_NEAR(found.rate, (1 << 20) / 0.1, 1e5);
}

TEST(Report, ClocksOfHostsArePutRight) {
  for (int64_t ahead : {-5'000'000, -700, 0, 300, 90'000'000}) {
    SCOPED_TRACE(ahead);
    Job job{.ranks = 4, .hosts = 2, .computation = {5000, 5000, 9000, 5000}, .transfer = 300, .ahead = {0, ahead}};
    Findings found = analyse(simulate(job).trace);
    ASSERT_EQ(found.clocks.size(), 1U);
    const HostClock& clock = found.clocks.front();
    EXPECT_TRUE(clock.is_known);
    EXPECT_LE(std::abs(clock.offset - static_cast<double>(ahead) / 1e6), clock.error + 1e-6);
    EXPECT_LE(clock.error, 100e-6);
    const Advice* advice = find(found, "straggler");
    ASSERT_NE(advice, nullptr);
    EXPECT_EQ(advice->rank, 2);
    EXPECT_NEAR(advice->gain, 4000e-6, 200e-6);
  }
}

TEST(Report, BalancedJobsGetNoFalseAdvice) {
  Findings found =
      analyse(simulate({.ranks = 4, .computation = {50'000, 50'000, 50'000, 50'000}, .transfer = 300}).trace);
  ASSERT_EQ(found.advice.size(), 1U);
  EXPECT_EQ(found.advice.front().what, "computation");
}

TEST(Report, NamesCannotBreakOutOfThePage) {
  Simulated simulated = simulate({.ranks = 2, .computation = {5000, 5000}});
  simulated.trace.names[0] = "</style><script>alert(1)</script>\x1b[2J";
  simulated.trace.ranks[1].host = "<b>";
  Findings found = analyse(simulated.trace);
  EXPECT_THAT(render_html(found), Not(HasSubstr("<script>")));
  EXPECT_THAT(render_html(found), Not(HasSubstr("<b>")));
  EXPECT_THAT(render_text(found), Not(HasSubstr("\x1b")));
}

TEST(Report, NothingRecordedIsSaid) { EXPECT_THAT(render_text(analyse({})), HasSubstr("no operation was recorded")); }

}  // namespace
}  // namespace hvd::report
