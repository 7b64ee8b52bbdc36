#include <fmt/core.h>

#include <algorithm>

#include "report/render.h"
#include "report/words.h"

namespace hvd::report {
namespace {

constexpr size_t kMostRanks = 32;    // rows
constexpr size_t kMostTensors = 10;  // rows

std::string head(const Findings& found) {
  std::string text =
      fmt::format("{} of {} ranks on {} host{}, {} recorded, {} operations\n", found.files, found.size,
                  found.hosts.size(), found.hosts.size() == 1 ? "" : "s", duration(found.recorded), found.operations);
  if (found.steps.empty()) {
    return text +
           "No steps were recognised (no name comes round often enough): times are those of the whole recording.\n";
  }
  return text + fmt::format("{} steps of {} (5 % below {}, 5 % above {}), counted by {}\n", found.steps.size(),
                            duration(found.step), duration(found.step_fast), duration(found.step_slow),
                            printable(found.anchor));
}

std::string ranks_table(const Findings& found) {
  std::string text = fmt::format("\n{:>6} {:>12} {:>12} {:>12} {:>12} {:>12} {:>8}  {}\n", "rank", "computation",
                                 "waits late", "exposed", "overhead", "hidden", "last", "host");
  for (size_t i = 0; i < std::min(found.ranks.size(), kMostRanks); i++) {
    const RankTime& time = found.ranks[i];
    text += fmt::format("{:>6} {:>12} {:>12} {:>12} {:>12} {:>12} {:>8}  {}\n", time.rank, duration(time.computation),
                        duration(time.waiting), duration(time.transfer), duration(time.overhead), duration(time.hidden),
                        time.last, printable(time.host));
  }
  if (found.ranks.size() > kMostRanks) text += fmt::format("  and {} more\n", found.ranks.size() - kMostRanks);
  text += fmt::format(
      "Per step. Waits late: for a rank that had not submitted yet. Exposed: for bytes to move. Overhead: for "
      "agreement, and behind other operations. Hidden: communication during computation. Last: operations that waited "
      "for it.{}\n",
      found.has_waits
          ? ""
          : "\nThe program does not wait in Horovod itself; its waits are estimated, from the last submission "
            "of a run of operations to their end.");
  return text;
}

std::string waits_text(const Findings& found) {
  std::string text;
  for (size_t rank = 0; rank < found.waited.size() && found.waited.size() > 1; rank++) {
    double sum = 0;
    std::string who;
    for (size_t other = 0; other < found.waited.size(); other++) {
      if (other == rank || found.waited[other][rank] <= 0.01 * found.step) continue;
      sum += found.waited[other][rank];
      if (who.size() < 60) {
        who += fmt::format("{}rank {} {}", who.empty() ? "" : ", ", found.ranks[other].rank,
                           duration(found.waited[other][rank]));
      }
    }
    if (sum > 0) text += fmt::format("  for rank {}: {}\n", found.ranks[rank].rank, who);
  }
  return text.empty() ? "" : "\nWho waited for whom, per step:\n" + text;
}

std::string tensors_table(const Findings& found) {
  if (found.tensors.empty()) return "";
  std::string text = fmt::format("\n{:>10} {:>10} {:>8} {:>12} {:>10}  {}\n", "all", "each", "times", "size",
                                 "lateness", "slowest tensors");
  for (size_t i = 0; i < std::min(found.tensors.size(), kMostTensors); i++) {
    const TensorTime& tensor = found.tensors[i];
    text += fmt::format("{:>10} {:>10} {:>8} {:>12} {:>10}  {} ({})\n", duration(tensor.total),
                        duration(tensor.transfer), tensor.count, size_text(static_cast<double>(tensor.bytes)),
                        duration(tensor.lateness), printable(tensor.name), printable(tensor.kind));
  }
  return text;
}

std::string plans_text(const Findings& found) {
  if (found.plans <= 0) return "";
  std::string text =
      fmt::format("\nFusion: {:.1f} plans per {} with {:.1f} tensors and {} each; {:.0f} % below 64 KiB.\n",
                  found.plans, found.steps.empty() ? "recording" : "step", found.tensors_per_plan,
                  size_text(found.bytes_per_plan), 100 * found.small_plans);
  if (found.latency > 0 || found.rate > 0) {
    text += fmt::format("A small plan takes {}{}.\n", found.latency > 0 ? duration(found.latency) : "?",
                        found.rate > 0 ? fmt::format(", large ones move {}/s", size_text(found.rate)) : "");
  }
  if (found.cached >= 0) {
    text += fmt::format(
        "Cache: {:.0f} % of the tensors were known from before. From the last submission to the start: "
        "{}.\n",
        100 * found.cached, duration(found.agreement));
  }
  return text;
}

std::string clocks_text(const Findings& found) {
  std::string text;
  for (const HostClock& clock : found.clocks) {
    text += clock.is_known ? fmt::format("Clock of {}: {} {} that of rank 0, known to {}.\n", printable(clock.host),
                                         duration(std::abs(clock.offset)), clock.offset < 0 ? "behind" : "ahead of",
                                         duration(clock.error))
                           : fmt::format(
                                 "Clock of {}: its difference from that of rank 0 is not known; times of the two "
                                 "are compared as their wall clocks say.\n",
                                 printable(clock.host));
  }
  return text.empty() ? "" : "\n" + text;
}

}  // namespace

std::string render_text(const Findings& found) {
  std::string text = head(found);
  for (const std::string& problem : found.problems) text += fmt::format("note: {}\n", printable(problem));
  if (!found.advice.empty()) text += "\n";
  for (const Advice& advice : found.advice) {
    std::string gain = advice.gain > 0 ? fmt::format(" [up to {} per step, {:.0f} %]", duration(advice.gain),
                                                     100 * advice.gain / found.step)
                                       : "";
    text += fmt::format("* {}{}\n  -> {}\n", advice.text, gain, advice.action);
  }
  text += ranks_table(found);
  if (found.overlap >= 0)
    text += fmt::format("Overlap: {:.0f} % of the communication is hidden behind computation.\n", 100 * found.overlap);
  return text + waits_text(found) + tensors_table(found) + plans_text(found) + clocks_text(found);
}

}  // namespace hvd::report
