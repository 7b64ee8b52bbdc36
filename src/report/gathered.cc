#include "report/gathered.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace hvd::report {
namespace {

struct Piece {
  int64_t plan;
  uint32_t name, rank, operation;
};

void note_submission(Collective& collective, const Trace& trace, Part part) {
  int64_t submit = trace.ranks[part.rank].operations[part.operation].submit;
  if (submit == kUnknownTime) return;
  collective.first = collective.first == kUnknownTime ? submit : std::min(collective.first, submit);
  if (collective.last == kUnknownTime || submit > collective.last) {
    collective.second_last = collective.last;
    collective.last = submit;
    collective.last_rank = static_cast<int32_t>(part.rank);
  } else {
    collective.second_last = std::max(collective.second_last, submit);
  }
}

}  // namespace

Gathered gather(const Trace& trace) {
  std::vector<Piece> pieces;
  for (uint32_t rank = 0; rank < trace.ranks.size(); rank++) {
    const auto& operations = trace.ranks[rank].operations;
    std::map<uint32_t, int64_t> seen;  // names, where no plans are recorded
    for (uint32_t i = 0; i < operations.size(); i++) {
      int64_t plan = operations[i].plan >= 0 ? operations[i].plan : seen[operations[i].name]++;
      pieces.push_back({plan, operations[i].name, rank, i});
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& one, const Piece& other) {
    return std::tie(one.plan, one.name, one.rank, one.operation) <
           std::tie(other.plan, other.name, other.rank, other.operation);
  });
  Gathered gathered;
  for (const RankTrace& rank : trace.ranks) gathered.collective_of.emplace_back(rank.operations.size());
  for (const Piece& piece : pieces) {
    bool is_new = gathered.collectives.empty() || gathered.collectives.back().plan != piece.plan ||
                  gathered.collectives.back().name != piece.name;
    if (is_new) {
      gathered.collectives.push_back(
          {.plan = piece.plan, .name = piece.name, .begin = gathered.parts.size(), .end = gathered.parts.size()});
    }
    Collective& collective = gathered.collectives.back();
    gathered.parts.push_back({piece.rank, piece.operation});
    collective.end++;
    gathered.collective_of[piece.rank][piece.operation] = static_cast<uint32_t>(gathered.collectives.size() - 1);
    note_submission(collective, trace, gathered.parts.back());
  }
  return gathered;
}

Steps find_steps(const Trace& trace, const Gathered& gathered) {
  // The number of times that most of the operations belong to; of the tensors that came so often, the first.
  std::vector<size_t> counts(trace.names.size());
  for (const Collective& collective : gathered.collectives) counts[collective.name]++;
  std::map<size_t, size_t> weight;
  for (size_t count : counts) {
    if (count >= 3) weight[count] += count;
  }
  if (weight.empty()) return {};
  auto most = std::max_element(weight.begin(), weight.end(),
                               [](const auto& one, const auto& other) { return one.second < other.second; });
  auto begin_of = [&](const Collective& collective) {
    const Part& part = gathered.parts[collective.begin];
    return collective.first != kUnknownTime ? collective.first
                                            : trace.ranks[part.rank].operations[part.operation].start;
  };
  std::map<uint32_t, std::vector<int64_t>> begins;  // of the candidates
  for (const Collective& collective : gathered.collectives) {
    if (counts[collective.name] == most->first) begins[collective.name].push_back(begin_of(collective));
  }
  for (auto& [name, times] : begins) std::sort(times.begin(), times.end());
  // The first of a typical step: the second, as the first one has no warm caches.
  auto anchor = std::min_element(begins.begin(), begins.end(),
                                 [](const auto& one, const auto& other) { return one.second[1] < other.second[1]; });
  return {.anchor = trace.names[anchor->first], .begins = anchor->second};
}

}  // namespace hvd::report
