#include "report/waiting.h"

#include <algorithm>
#include <queue>

namespace hvd::report {
namespace {

std::vector<Interval> united(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(), [](auto& one, auto& other) { return one.begin < other.begin; });
  std::vector<Interval> result;
  for (const Interval& interval : intervals) {
    if (interval.end <= interval.begin) continue;
    if (!result.empty() && interval.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, interval.end);
    } else {
      result.push_back(interval);
    }
  }
  return result;
}

std::vector<Interval> estimated_waits(const RankTrace& rank) {
  std::vector<Interval> waits;
  int64_t last_submit = kUnknownTime, end = kUnknownTime;
  std::vector<const Operation*> by_submission;
  for (const Operation& operation : rank.operations) {
    if (operation.submit != kUnknownTime && operation.end != kUnknownTime) by_submission.push_back(&operation);
  }
  std::sort(by_submission.begin(), by_submission.end(),
            [](auto* one, auto* other) { return one->submit < other->submit; });
  for (const Operation* operation : by_submission) {
    if (end != kUnknownTime && operation->submit > end) waits.push_back({last_submit, end});
    last_submit = operation->submit;
    end = std::max(end, operation->end);
  }
  if (end != kUnknownTime) waits.push_back({last_submit, end});
  return waits;
}

// Whether a time lies in sorted intervals; asked with growing times.
class Cursor {
 public:
  explicit Cursor(const std::vector<Interval>& intervals) : intervals_(intervals) {}
  bool contains(int64_t time) {
    while (at_ < intervals_.size() && intervals_[at_].end <= time) at_++;
    return at_ < intervals_.size() && intervals_[at_].begin <= time;
  }

 private:
  const std::vector<Interval>& intervals_;
  size_t at_ = 0;
};

// An operation that is submitted and has not started.
struct Pending {
  int64_t submit, start, ready;
  int32_t late_rank;
  bool operator>(const Pending& other) const { return start > other.start; }
};

}  // namespace

std::vector<Interval> waits_of(const RankTrace& rank, bool has_waits) {
  return united(has_waits ? rank.waits : estimated_waits(rank));
}

void divide(const Trace& trace, const Gathered& gathered, uint32_t rank, const std::vector<Interval>& waits,
            Interval within, const std::function<void(const Stretch&)>& take) {
  const RankTrace& own = trace.ranks[rank];
  std::vector<Interval> moving;
  std::vector<Pending> pending;
  std::vector<int64_t> cuts{within.begin, within.end};
  auto cut = [&](int64_t time) {
    if (time > within.begin && time < within.end) cuts.push_back(time);
  };
  for (uint32_t i = 0; i < own.operations.size(); i++) {
    const Operation& operation = own.operations[i];
    if (operation.end != kUnknownTime) moving.push_back({operation.start, operation.end});
    if (operation.submit == kUnknownTime) continue;
    const Collective& collective = gathered.collectives[gathered.collective_of[rank][i]];
    bool is_own_fault = collective.last_rank == static_cast<int32_t>(rank);
    int64_t ready = is_own_fault ? operation.submit : std::min(collective.last, operation.start);
    pending.push_back({operation.submit, operation.start, ready, collective.last_rank});
    cut(operation.submit);
    cut(ready);
    cut(operation.start);
  }
  moving = united(std::move(moving));
  for (const Interval& interval : moving) cut(interval.begin), cut(interval.end);
  for (const Interval& interval : waits) cut(interval.begin), cut(interval.end);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::sort(pending.begin(), pending.end(), [](auto& one, auto& other) { return one.submit < other.submit; });
  std::priority_queue<Pending, std::vector<Pending>, std::greater<>> open;  // what starts first is what is waited for
  Cursor in_wait(waits), in_move(moving);
  size_t next = 0;
  for (size_t i = 0; i + 1 < cuts.size(); i++) {
    int64_t at = cuts[i];
    while (next < pending.size() && pending[next].submit <= at) open.push(pending[next++]);
    while (!open.empty() && open.top().start <= at) open.pop();
    Stretch stretch{.begin = at, .end = cuts[i + 1], .moves = in_move.contains(at)};
    if (in_wait.contains(at)) {
      if (stretch.moves) {
        stretch.kind = Stretch::Kind::transfer;
      } else if (!open.empty() && at < open.top().ready) {
        stretch.kind = Stretch::Kind::waiting;
        stretch.late_rank = open.top().late_rank;
      } else {
        stretch.kind = Stretch::Kind::overhead;
      }
    }
    take(stretch);
  }
}

}  // namespace hvd::report
