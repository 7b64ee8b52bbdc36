#include "report/clocks.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

namespace hvd::report {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
constexpr int64_t kBucket = 10'000'000;  // microseconds in which two clocks do not drift apart by much

// What is to be added to a clock lies between the two.
struct Bounds {
  int64_t low = -kNone, high = kNone;
  bool are_known() const { return low != -kNone && high != kNone; }
};

using Buckets = std::map<int64_t, Bounds>;  // by the root's time

// Where an operation is: the key that all ranks share.
using Key = std::pair<int64_t, uint32_t>;

void shift(RankTrace& rank, int64_t by) {
  auto add = [by](int64_t& time) {
    if (time != kUnknownTime) time += by;
  };
  for (Operation& operation : rank.operations) {
    for (int64_t* time : {&operation.submit, &operation.start, &operation.end, &operation.agreed}) add(*time);
  }
  for (Interval& wait : rank.waits) add(wait.begin), add(wait.end);
  for (Mark& mark : rank.marks) add(mark.when);
}

bool same_host(const RankTrace& one, const RankTrace& other) {
  return one.host == other.host && one.boot_start >= 0 && other.boot_start >= 0;
}

void bound(Buckets& buckets, const RankTrace& root, const std::map<std::pair<int64_t, uint32_t>, size_t>& roots,
           const std::map<std::pair<size_t, int32_t>, int64_t>& heard, const RankTrace& rank) {
  for (const Operation& operation : rank.operations) {
    if (operation.plan < 0) continue;
    auto found = roots.find({operation.plan, operation.name});
    if (found == roots.end()) continue;
    const Operation& of_root = root.operations[found->second];
    if (of_root.agreed == kUnknownTime) continue;
    Bounds& bounds = buckets[of_root.agreed / kBucket];
    bounds.low = std::max(bounds.low, of_root.agreed - operation.start);
    if (operation.submit == kUnknownTime) continue;
    auto mark = heard.find({found->second, rank.rank});
    int64_t when = mark == heard.end() ? of_root.agreed : mark->second;
    bounds.high = std::min(bounds.high, when - operation.submit);
  }
}

// The middle of the bounds nearest to that time.
struct Correction {
  std::vector<std::pair<int64_t, int64_t>> points;  // time, what to add
  int64_t at(int64_t time) const {
    if (points.empty()) return 0;
    auto next = std::lower_bound(points.begin(), points.end(), std::pair(time, -kNone));
    if (next == points.begin()) return points.front().second;
    if (next == points.end()) return points.back().second;
    auto [t0, v0] = *(next - 1);
    auto [t1, v1] = *next;
    return v0 + static_cast<int64_t>(static_cast<double>(v1 - v0) * static_cast<double>(time - t0) /
                                     static_cast<double>(std::max<int64_t>(t1 - t0, 1)));
  }
};

void correct(RankTrace& rank, const Correction& correction) {
  auto add = [&](int64_t& time) {
    if (time != kUnknownTime) time += correction.at(time);
  };
  for (Operation& operation : rank.operations) {
    for (int64_t* time : {&operation.submit, &operation.start, &operation.end}) add(*time);
  }
  for (Interval& wait : rank.waits) add(wait.begin), add(wait.end);
}

}  // namespace

std::vector<HostClock> align_clocks(Trace& trace) {
  std::vector<HostClock> clocks;
  if (trace.ranks.empty()) return clocks;
  RankTrace& root = trace.ranks.front();
  bool has_root = root.rank == 0;
  std::map<Key, size_t> roots;
  std::map<std::pair<size_t, int32_t>, int64_t> heard;
  bool spans_hosts = std::any_of(trace.ranks.begin(), trace.ranks.end(),
                                 [&](const RankTrace& rank) { return &rank != &root && !same_host(rank, root); });
  if (has_root && spans_hosts) {
    for (size_t i = 0; i < root.operations.size(); i++) {
      if (root.operations[i].plan >= 0) roots.emplace(Key{root.operations[i].plan, root.operations[i].name}, i);
    }
    for (const Mark& mark : root.marks) heard.emplace(std::pair(size_t{mark.operation}, mark.rank), mark.when);
  }
  std::map<std::string, Buckets> hosts;
  std::map<std::string, int64_t> boot_offsets;  // of a host's first file: all of its ranks share what comes after it
  for (RankTrace& rank : trace.ranks) {
    if (&rank == &root) continue;
    if (same_host(rank, root)) {
      shift(rank, rank.boot_start - root.boot_start);
      continue;
    }
    int64_t by = rank.epoch_start - root.epoch_start;
    if (rank.boot_start >= 0) {
      auto [first, is_new] = boot_offsets.emplace(rank.host, by - rank.boot_start);
      by = first->second + rank.boot_start;
    }
    shift(rank, by);
    bound(hosts[rank.host], root, roots, heard, rank);
  }
  for (auto& [host, buckets] : hosts) {
    HostClock clock{.host = host};
    Correction correction;
    for (const auto& [bucket, bounds] : buckets) {
      if (!bounds.are_known()) continue;
      int64_t middle = bounds.low + (bounds.high - bounds.low) / 2;
      correction.points.emplace_back(bucket * kBucket + kBucket / 2, middle);
      double error = static_cast<double>(std::max<int64_t>(bounds.high - bounds.low, 0)) / 2e6;
      clock.error = std::max(clock.error, error);
    }
    clock.is_known = !correction.points.empty();
    if (clock.is_known) clock.offset = -static_cast<double>(correction.points.front().second) / 1e6;
    for (RankTrace& rank : trace.ranks) {
      if (rank.host == host && &rank != &root && !same_host(rank, root)) correct(rank, correction);
    }
    clocks.push_back(clock);
  }
  return clocks;
}

}  // namespace hvd::report
