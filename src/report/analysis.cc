#include "report/analysis.h"

#include <algorithm>
#include <limits>
#include <map>

#include "report/advice.h"
#include "report/clocks.h"
#include "report/gathered.h"
#include "report/waiting.h"

namespace hvd::report {
namespace {

constexpr size_t kSlowestTensors = 20;
constexpr uint64_t kSmallPlan = 64 << 10;  // bytes

double seconds_from(int64_t micros) { return static_cast<double>(micros) / 1e6; }

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  auto at = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

class Analysis {
 public:
  explicit Analysis(Trace trace) : trace_(std::move(trace)) {}

  Findings run() {
    found_.problems = std::move(trace_.problems);
    found_.files = trace_.ranks.size();
    found_.clocks = align_clocks(trace_);
    for (const RankTrace& rank : trace_.ranks) {
      found_.size = std::max({found_.size, rank.size, rank.rank + 1});
      found_.operations += rank.operations.size();
      std::string host = rank.host.empty() ? "?" : rank.host;
      if (std::find(found_.hosts.begin(), found_.hosts.end(), host) == found_.hosts.end()) found_.hosts.push_back(host);
    }
    gathered_ = gather(trace_);
    find_window();
    found_.has_waits = waits_in_steps();
    divide_time();
    find_pauses();
    describe_tensors();
    describe_plans();
    found_.advice = advise(found_, lateness_);
    return std::move(found_);
  }

 private:
  void find_window() {
    Steps steps = find_steps(trace_, gathered_);
    int64_t first = std::numeric_limits<int64_t>::max(), last = std::numeric_limits<int64_t>::min();
    for (const RankTrace& rank : trace_.ranks) {
      for (const Operation& operation : rank.operations) {
        first = std::min(first, operation.submit != kUnknownTime ? operation.submit : operation.start);
        last = std::max({last, operation.start, operation.end});
      }
    }
    if (first > last) {
      found_.problems.emplace_back("no operation was recorded");
      return;
    }
    found_.recorded = seconds_from(last - first);
    begins_ = {first, std::max(last, first + 1)};
    if (steps.begins.size() < 3) return;
    found_.anchor = steps.anchor;
    begins_ = steps.begins;
    begins_.erase(std::unique(begins_.begin(), begins_.end()), begins_.end());
    for (size_t i = 0; i + 1 < begins_.size(); i++) found_.steps.push_back(seconds_from(begins_[i + 1] - begins_[i]));
  }

  // Whether the program waits in Horovod in its steps, and not only before them, as for the initial weights.
  bool waits_in_steps() const {
    size_t waits = 0;
    for (const RankTrace& rank : trace_.ranks) {
      waits += static_cast<size_t>(std::count_if(rank.waits.begin(), rank.waits.end(), [&](const Interval& wait) {
        return !begins_.empty() && wait.end > begins_.front() && wait.begin < begins_.back();
      }));
    }
    return waits > 0 && 2 * waits >= found_.steps.size() * trace_.ranks.size();
  }

  size_t step_count() const { return begins_.empty() ? 0 : begins_.size() - 1; }
  size_t step_at(int64_t time) const {
    auto next = std::upper_bound(begins_.begin(), begins_.end(), time);
    return static_cast<size_t>(next - begins_.begin()) - 1;
  }

  void divide_time() {
    size_t ranks = trace_.ranks.size(), steps = step_count();
    found_.step = found_.steps.empty() ? found_.recorded : percentile(found_.steps, 0.5);
    found_.step_fast = found_.steps.empty() ? found_.step : percentile(found_.steps, 0.05);
    found_.step_slow = found_.steps.empty() ? found_.step : percentile(found_.steps, 0.95);
    found_.waited.assign(ranks, std::vector<double>(ranks));
    lateness_.assign(ranks, std::vector<double>(steps));
    for (uint32_t rank = 0; rank < ranks; rank++) {
      found_.ranks.push_back({.rank = trace_.ranks[rank].rank, .host = trace_.ranks[rank].host});
      if (steps > 0) divide_time(rank);
    }
    count_lateness();
    double moved = 0, hidden = 0;
    for (RankTime& time : found_.ranks) {
      moved += time.communication;
      hidden += time.hidden;
    }
    if (moved > 0) found_.overlap = hidden / moved;
  }

  // A step begins with a submission of the first rank, so computation before the first submission of a step is at the
  // end of what lies between two begins; it is counted from the end of the last wait.
  void divide_time(uint32_t rank) {
    RankTime& time = found_.ranks[rank];
    double steps = static_cast<double>(step_count()), before = 0;
    size_t others = trace_.ranks.size() - 1;
    int64_t first_submit_after = 0;
    std::vector<int64_t> submits;
    for (const Operation& operation : trace_.ranks[rank].operations) {
      if (operation.submit != kUnknownTime) submits.push_back(operation.submit);
    }
    std::sort(submits.begin(), submits.end());
    auto take = [&](const Stretch& stretch) {
      double length = seconds_from(stretch.end - stretch.begin);
      if (stretch.moves) time.communication += length;
      switch (stretch.kind) {
        case Stretch::Kind::computation:
          time.computation += length;
          if (stretch.moves) time.hidden += length;
          // From the end of a wait until something is submitted again.
          if (stretch.begin >= first_submit_after) before += length;
          break;
        case Stretch::Kind::waiting:
          time.waiting += length;
          if (stretch.late_rank >= 0) {
            found_.waited[rank][static_cast<size_t>(stretch.late_rank)] += length;
            lateness_[static_cast<size_t>(stretch.late_rank)][step_at(stretch.begin)] +=
                length / static_cast<double>(std::max<size_t>(others, 1));
          }
          break;
        case Stretch::Kind::transfer: time.transfer += length; break;
        case Stretch::Kind::overhead: time.overhead += length; break;
      }
      if (stretch.kind != Stretch::Kind::computation) first_submit_after = stretch.end;
      auto submit = std::lower_bound(submits.begin(), submits.end(), stretch.end);
      bool submits_here = submit != submits.end() && *submit == stretch.end;
      if (submits_here) first_submit_after = std::numeric_limits<int64_t>::max();
    };
    Interval window{begins_.front(), begins_.back()};
    divide(trace_, gathered_, rank, waits_of(trace_.ranks[rank], found_.has_waits), window, take);
    for (double* part :
         {&time.computation, &time.waiting, &time.transfer, &time.overhead, &time.communication, &time.hidden})
      *part /= steps;
    time.before_first = before / steps;
    for (double& part : found_.waited[rank]) part /= steps;
  }

  void count_lateness() {
    for (const Collective& collective : gathered_.collectives) {
      if (collective.second_last == kUnknownTime) continue;
      RankTime& last = found_.ranks[static_cast<size_t>(collective.last_rank)];
      last.last++;
      last.late += seconds_from(collective.last - collective.second_last);
    }
    for (RankTime& time : found_.ranks) {
      if (time.last > 0) time.late /= static_cast<double>(time.last);
    }
  }

  // Steps that take much longer than usual.
  void find_pauses() {
    if (found_.steps.size() < 5) return;
    double usual = found_.step;
    for (size_t i = 0; i < found_.steps.size(); i++) {
      double extra = found_.steps[i] - usual;
      if (extra < std::max(0.5 * usual, 0.001)) continue;
      Pause pause{.step = i, .extra = extra};
      // What is between two begins is the rest of one step and the start of the next; both see the late rank.
      for (size_t rank = 0; rank < lateness_.size(); rank++) {
        double late = lateness_[rank][i] + (i + 1 < found_.steps.size() ? lateness_[rank][i + 1] : 0);
        if (late > 0.5 * extra) pause.rank = found_.ranks[rank].rank;
      }
      found_.pauses.push_back(pause);
    }
    std::map<size_t, size_t> distances;
    for (size_t i = 1; i < found_.pauses.size(); i++) distances[found_.pauses[i].step - found_.pauses[i - 1].step]++;
    for (auto [distance, count] : distances) {
      if (count >= 2 && distance > 1 && count * 3 >= (found_.pauses.size() - 1) * 2) found_.pause_period = distance;
    }
  }

  void describe_tensors() {
    struct Sum {
      TensorTime time;
      std::map<int32_t, size_t> last;
      size_t gathered = 0;
    };
    std::map<uint32_t, Sum> sums;
    for (const Collective& collective : gathered_.collectives) {
      Sum& sum = sums[collective.name];
      double shortest = -1;
      for (size_t i = collective.begin; i < collective.end; i++) {
        const Part& part = gathered_.parts[i];
        const Operation& operation = trace_.ranks[part.rank].operations[part.operation];
        sum.time.bytes = std::max(sum.time.bytes, operation.bytes);
        sum.time.kind = trace_.kinds[operation.kind];
        if (operation.end == kUnknownTime) continue;
        double length = seconds_from(operation.end - operation.start);
        shortest = shortest < 0 ? length : std::min(shortest, length);
      }
      sum.time.count++;
      sum.time.total += std::max(shortest, 0.0);
      if (collective.second_last == kUnknownTime) continue;
      sum.gathered++;
      sum.time.lateness += seconds_from(collective.last - collective.first);
      sum.last[collective.last_rank]++;
    }
    for (auto& [name, sum] : sums) {
      TensorTime time = std::move(sum.time);
      time.name = trace_.names[name];
      time.transfer = time.total / static_cast<double>(time.count);
      if (sum.gathered > 0) time.lateness /= static_cast<double>(sum.gathered);
      size_t most = 0;
      for (auto [rank, count] : sum.last) {
        if (count > most) time.last_rank = trace_.ranks[static_cast<size_t>(rank)].rank;
        most = std::max(most, count);
      }
      found_.tensors.push_back(std::move(time));
    }
    std::sort(found_.tensors.begin(), found_.tensors.end(),
              [](const TensorTime& one, const TensorTime& other) { return one.total > other.total; });
    if (found_.tensors.size() > kSlowestTensors) found_.tensors.resize(kSlowestTensors);
  }

  void describe_plans() {
    struct OnePlan {
      uint64_t bytes = 0;
      size_t tensors = 0;
      double transfer = -1;
    };
    std::vector<OnePlan> plans;
    int64_t last_plan = -1;
    size_t cached = 0, started = 0;
    double queued = 0;
    bool has_plans = false;
    for (const Collective& collective : gathered_.collectives) {
      const Part& part = gathered_.parts[collective.begin];
      const Operation& operation = trace_.ranks[part.rank].operations[part.operation];
      int64_t begin = collective.first != kUnknownTime ? collective.first : operation.start;
      if (operation.plan < 0 || begins_.empty() || begin < begins_.front() || begin >= begins_.back()) continue;
      has_plans = true;
      cached += operation.is_cached ? 1 : 0;
      if (plans.empty() || operation.plan != last_plan) plans.emplace_back();
      last_plan = operation.plan;
      OnePlan& plan = plans.back();
      plan.tensors++;
      plan.bytes += operation.bytes;
      for (size_t i = collective.begin; i < collective.end; i++) {
        const Operation& each = trace_.ranks[gathered_.parts[i].rank].operations[gathered_.parts[i].operation];
        if (each.end == kUnknownTime) continue;
        double length = seconds_from(each.end - each.start);
        plan.transfer = plan.transfer < 0 ? length : std::min(plan.transfer, length);
      }
      if (collective.last == kUnknownTime) continue;
      started++;
      queued += seconds_from(std::max<int64_t>(operation.start - collective.last, 0));
    }
    if (!has_plans) return;
    double count = static_cast<double>(plans.size()), tensors = 0, bytes = 0, small = 0;
    std::vector<double> small_times, rates;
    for (const OnePlan& plan : plans) {
      tensors += static_cast<double>(plan.tensors);
      bytes += static_cast<double>(plan.bytes);
      small += plan.bytes < kSmallPlan ? 1 : 0;
      if (plan.bytes < kSmallPlan && plan.transfer >= 0) small_times.push_back(plan.transfer);
    }
    found_.latency = percentile(small_times, 0.5);
    for (const OnePlan& plan : plans) {
      if (plan.bytes >= kSmallPlan && plan.transfer > 0)
        rates.push_back(static_cast<double>(plan.bytes) / std::max(plan.transfer - found_.latency, plan.transfer / 2));
    }
    found_.rate = percentile(rates, 0.5);
    found_.plans = count / static_cast<double>(step_count());
    found_.tensors_per_plan = tensors / count;
    found_.bytes_per_plan = bytes / count;
    found_.small_plans = small / count;
    found_.cached = static_cast<double>(cached) / tensors;
    if (started > 0) found_.agreement = queued / static_cast<double>(started);
  }

  Trace trace_;
  Findings found_;
  Gathered gathered_;
  std::vector<int64_t> begins_;                // of the steps, and the end of the last
  std::vector<std::vector<double>> lateness_;  // [rank][step]: mean time that the others waited for it
};

}  // namespace

Findings analyse(Trace trace) { return Analysis(std::move(trace)).run(); }

}  // namespace hvd::report
