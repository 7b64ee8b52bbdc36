#include "report/advice.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "report/words.h"

namespace hvd::report {
namespace {

constexpr double kWorthSaying = 0.03;  // of a step
constexpr double kNearlyAll = 0.8;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class Of>
double mean_of(const Findings& found, Of of) {
  double sum = 0;
  for (const RankTime& time : found.ranks) sum += of(time);
  return found.ranks.empty() ? 0 : sum / static_cast<double>(found.ranks.size());
}

template <class Of>
double usual_of_others(const Findings& found, size_t but, Of of) {
  std::vector<double> values;
  for (size_t i = 0; i < found.ranks.size(); i++) {
    if (i != but) values.push_back(of(found.ranks[i]));
  }
  return median(std::move(values));
}

// A rank that the others wait for in most steps.
void find_stragglers(const Findings& found, const std::vector<std::vector<double>>& lateness,
                     std::vector<Advice>& advice) {
  for (size_t rank = 0; rank < found.ranks.size(); rank++) {
    double gain = median(lateness[rank]);
    for (size_t other = 0; other < found.ranks.size(); other++) {
      if (other != rank) gain = std::min(gain, found.waited[other][rank]);
    }
    if (gain < kWorthSaying * found.step || found.ranks.size() < 2) continue;
    const RankTime& own = found.ranks[rank];
    auto computation = [](const RankTime& time) { return time.computation; };
    auto before = [](const RankTime& time) { return time.before_first; };
    double usual = usual_of_others(found, rank, computation);
    double extra = own.computation - usual;
    double extra_before = own.before_first - usual_of_others(found, rank, before);
    bool is_all_before = usual_of_others(found, rank, before) > 0.9 * usual;
    std::string where =
        "It lies before the first operation of a step as well as between operations: the rank computes more slowly.";
    if (is_all_before) {
      where = "All computation is before the first operation of a step: loading data, or computing, is slower there.";
    } else if (extra_before > 0.8 * extra) {
      where = "It lies before the first operation of a step: loading data, or the forward pass, is slower there.";
    } else if (extra_before < 0.2 * extra) {
      where = "It lies between the operations of a step: the backward pass is slower there.";
    }
    advice.push_back(
        {.what = "straggler",
         .text = fmt::format("rank {} on {} is late in most steps: it computes for {} where the others need "
                             "{}. {}",
                             own.rank, place_of(own), duration(own.computation), duration(usual), where),
         .action = fmt::format("look for other work on {}, a slow or hot processor, a slow disk, and a larger "
                               "share of the data on rank {}",
                               place_of(own), own.rank),
         .gain = gain,
         .rank = own.rank});
  }
}

void find_pauses(const Findings& found, std::vector<Advice>& advice) {
  double extra = 0;
  std::map<int32_t, double> by_rank;
  for (const Pause& pause : found.pauses) {
    extra += pause.extra;
    by_rank[pause.rank] += pause.extra;
  }
  double gain = found.steps.empty() ? 0 : extra / static_cast<double>(found.steps.size());
  if (gain < kWorthSaying * found.step) return;
  auto most = std::max_element(by_rank.begin(), by_rank.end(),
                               [](const auto& one, const auto& other) { return one.second < other.second; });
  bool is_one = most->second >= kNearlyAll * extra;  // other work on the hosts may have added a pause or two
  int32_t rank = is_one ? most->first : -1;
  std::string who = rank >= 0 ? fmt::format("while the others wait for rank {}", rank)
                    : is_one  ? "on all ranks at once"
                              : "on several ranks";
  std::string when = found.pause_period > 0 ? fmt::format(" (one in {})", found.pause_period) : "";
  advice.push_back(
      {.what = "pauses",
       .text =
           fmt::format("{} of {} steps{} take much longer than the others ({} more on average), {}. That is typical of "
                       "a data loader that cannot keep up, and of saving or evaluating the model",
                       found.pauses.size(), found.steps.size(), when,
                       duration(extra / static_cast<double>(found.pauses.size())), who),
       .action = "more data loader processes, more prefetching, or data on a faster disk; save in the background",
       .gain = gain,
       .rank = rank});
}

void find_unevenness(const Findings& found, const std::vector<Advice>& known, std::vector<Advice>& advice) {
  double waiting = mean_of(found, [](const RankTime& time) { return time.waiting; });
  for (const Advice& one : known) waiting -= one.gain;
  if (waiting < 2 * kWorthSaying * found.step || found.ranks.size() < 2) return;
  advice.push_back(
      {.what = "uneven",
       .text =
           fmt::format("ranks wait {} per step for ranks that are late, a different one each time", duration(waiting)),
       .action = "batches of equal cost for all ranks (sort by length, or pad), and fewer threads per rank "
                 "than cores",
       .gain = waiting});
}

void find_transfer(const Findings& found, std::vector<Advice>& advice) {
  double exposed = mean_of(found, [](const RankTime& time) { return time.transfer; });
  if (exposed < 2 * kWorthSaying * found.step) return;
  double bytes = found.plans * found.bytes_per_plan;
  double moving = found.rate > 0 ? bytes / found.rate : 0, starting = found.plans * found.latency;
  double share = moving + starting > 0 ? moving / (moving + starting) : 0;
  std::string where = found.hosts.size() > 1 ? fmt::format("between {} hosts", found.hosts.size()) : "inside one host";
  if (moving > starting && found.rate > 0) {
    advice.push_back(
        {.what = "network",
         .text = fmt::format("every rank waits {} per step for bytes: {} per step move {} at {}/s", duration(exposed),
                             size_text(bytes), where, size_text(found.rate)),
         .action =
             found.hosts.size() > 1
                 ? "16-bit gradients (compression=hvd.Compression.bf16) halve the bytes; horovodrun --doctor -H ... "
                   "finds slow links and the wrong network; HOROVOD_NETWORK_INTERFACES names the fast one"
                 : "fewer ranks on this host with more threads each, or larger batches",
         .gain = exposed * share * 0.5});
  }
  double together = found.plans * found.small_plans * found.latency;
  if (found.plans > 8 && found.small_plans > 0.5 && found.tensors_per_plan < 4) {
    double gain = std::min(exposed, together * (1 - 1 / std::max(found.plans, 1.0)));
    if (gain > kWorthSaying * found.step) {
      advice.push_back(
          {.what = "fusion",
           .text = fmt::format("{:.0f} plans per step with {:.1f} tensors each; {:.0f} % move less than 64 KiB, "
                               "and each takes {} whatever its size",
                               found.plans, found.tensors_per_plan, 100 * found.small_plans, duration(found.latency)),
           .action = "submit them together (grouped_allreduce, or groups= of the optimizer), or let them wait "
                     "for each other: --cycle-time-ms 1",
           .gain = gain});
    }
  }
  double computation = mean_of(found, [](const RankTime& time) { return time.computation; });
  if (found.overlap >= 0 && found.overlap < 0.3 && computation > exposed) {
    advice.push_back(
        {.what = "overlap",
         .text = fmt::format("only {:.0f} % of the communication happens during computation", 100 * found.overlap),
         .action = "let gradients start as soon as each is ready: hvd.DistributedOptimizer does, calls of "
                   "allreduce after the backward pass do not; a smaller HOROVOD_FUSION_THRESHOLD starts the "
                   "first ones earlier",
         .gain = exposed * 0.5});
  }
}

void find_cache(const Findings& found, std::vector<Advice>& advice) {
  double overhead = mean_of(found, [](const RankTime& time) { return time.overhead; });
  if (found.cached < 0 || found.cached > 0.8 || found.steps.size() < 20) return;
  double gain = overhead * (1 - found.cached);
  if (gain < kWorthSaying * found.step / 3) return;
  advice.push_back(
      {.what = "cache",
       .text = fmt::format("only {:.0f} % of the tensors were known from earlier steps", 100 * found.cached),
       .action = "names that are the same in every step, and HOROVOD_CACHE_CAPACITY above their number",
       .gain = gain});
}

}  // namespace

std::vector<Advice> advise(const Findings& found, const std::vector<std::vector<double>>& lateness) {
  std::vector<Advice> advice;
  if (found.step <= 0) return advice;
  find_stragglers(found, lateness, advice);
  find_pauses(found, advice);
  find_unevenness(found, std::vector<Advice>(advice), advice);
  find_transfer(found, advice);
  find_cache(found, advice);
  std::stable_sort(advice.begin(), advice.end(), [](auto& one, auto& other) { return one.gain > other.gain; });
  if (advice.empty() && !found.ranks.empty() && found.operations > 0) {
    double computation = mean_of(found, [](const RankTime& time) { return time.computation; });
    advice.push_back({.what = "computation",
                      .text = fmt::format("communication is not what takes the time: {:.0f} % of it is computation and "
                                          "loading data",
                                          100 * computation / found.step),
                      .action = "profile one rank alone"});
  }
  return advice;
}

}  // namespace hvd::report
