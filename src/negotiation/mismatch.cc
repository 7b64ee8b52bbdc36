#include "negotiation/mismatch.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "base/joined.h"
#include "negotiation/messages.h"
#include "negotiation/signature.h"

namespace hvd {
namespace {

// A property that must be equal on all ranks.
struct Rule {
  std::string_view what;  // "data types"
  bool (*agree)(const Request& a, const Request& b);
  std::string (*value)(const Request& request);
};

std::string group_text(const Request& request) {
  return request.group.empty() ? "no group" : fmt::format("{} of {}", request.group, request.group_size);
}

// In the order of the checks; all but the first two may rely on equal kinds.
constexpr Rule kRules[] = {
    {"data types",
     [](const Request& a, const Request& b) {
       return !moves_data(a.kind) || !moves_data(b.kind) || a.dtype == b.dtype;
     },
     [](const Request& request) { return std::string(name_of(request.dtype)); }},
    {"operations", [](const Request& a, const Request& b) { return a.kind == b.kind; },
     [](const Request& request) { return std::string(name_of(request.kind)); }},
    {"shapes", [](const Request& a, const Request& b) { return same_shape(a.kind, a.shape, b.shape); },
     [](const Request& request) { return text_of(request.shape); }},
    {"prescale factors",
     [](const Request& a, const Request& b) { return !reduces(a.kind) || same_factor(a.prescale, b.prescale); },
     [](const Request& request) { return fmt::format("{}", request.prescale); }},
    {"postscale factors",
     [](const Request& a, const Request& b) { return !reduces(a.kind) || same_factor(a.postscale, b.postscale); },
     [](const Request& request) { return fmt::format("{}", request.postscale); }},
    {"reduce operations",
     [](const Request& a, const Request& b) { return !reduces(a.kind) || a.reduce_op == b.reduce_op; },
     [](const Request& request) { return std::string(name_of(request.reduce_op)); }},
    {"root ranks", [](const Request& a, const Request& b) { return !has_root(a.kind) || a.root_rank == b.root_rank; },
     [](const Request& request) { return fmt::format("{}", request.root_rank); }},
    {"devices", [](const Request& a, const Request& b) { return (a.device == kHost) == (b.device == kHost); },
     [](const Request& request) { return std::string(request.device == kHost ? "host" : "accelerator"); }},
    {"ranks of the process set", [](const Request& a, const Request& b) { return a.ranks == b.ranks; },
     [](const Request& request) { return fmt::format("[{}]", joined(request.ranks, ", ")); }},
    {"process sets", [](const Request& a, const Request& b) { return a.process_set == b.process_set; },
     [](const Request& request) { return fmt::format("{}", request.process_set); }},
    {"groups",
     [](const Request& a, const Request& b) {
       return a.group == b.group && (a.group.empty() || a.group_size == b.group_size);
     },
     [](const Request& request) { return group_text(request); }},
};

Status precondition(std::string text) { return {Code::precondition, std::move(text)}; }

Status find_new_set_violation(const Request& request, const ProcessSets& sets, int32_t world_size) {
  const std::vector<int32_t>& ranks = request.ranks;
  std::string set = fmt::format("process set [{}]", joined(ranks, ", "));
  if (ranks.empty()) return precondition("a process set needs at least one rank");
  for (int32_t rank : ranks) {
    if (rank >= 0 && rank < world_size) continue;
    return precondition(fmt::format("{} has rank {}, but the world has ranks 0 to {}", set, rank, world_size - 1));
  }
  auto repeated = std::adjacent_find(ranks.begin(), ranks.end());
  if (repeated != ranks.end()) return precondition(fmt::format("{} has rank {} more than once", set, *repeated));
  if (auto id = sets.find(ranks)) return precondition(fmt::format("{} exists already with id {}", set, *id));
  return {};
}

Status find_root_violation(const Request& request, const ProcessSets& sets) {
  if (sets.contains(request.process_set, Rank{request.root_rank})) return {};
  return precondition(fmt::format("root rank {} of {} {} is not in process set {}", request.root_rank,
                                  name_of(request.kind), request.name, request.process_set));
}

Status find_scalar_violation(const Request& request) {
  if (!request.shape.empty()) return {};
  return precondition(fmt::format("{} of a scalar is not possible: tensor {} needs at least one dimension",
                                  name_of(request.kind), request.name));
}

}  // namespace

Status find_mismatch(std::span<const Arrival> arrivals) {
  const Arrival& first = arrivals.front();
  for (const Rule& rule : kRules) {
    for (const Arrival& other : arrivals) {
      if (rule.agree(*first.request, *other.request)) continue;
      return precondition(fmt::format("mismatched {} for tensor {}: rank {} sent {}, rank {} sent {}", rule.what,
                                      first.request->name, index_of(first.rank), rule.value(*first.request),
                                      index_of(other.rank), rule.value(*other.request)));
    }
  }
  return {};
}

Status find_violation(const Request& request, const ProcessSets& sets, int32_t world_size) {
  switch (request.kind) {
    case Kind::allreduce:
    case Kind::barrier:
    case Kind::join:
    case Kind::probe: return {};
    case Kind::broadcast:
    case Kind::reduce:
    case Kind::transfer: return find_root_violation(request, sets);
    case Kind::gather:
    case Kind::scatter:
      if (Status status = find_root_violation(request, sets); !status.ok()) return status;
      return find_scalar_violation(request);
    case Kind::reducescatter:
      if (request.reduce_op != ReduceOp::sum && request.reduce_op != ReduceOp::average) {
        return {Code::aborted, fmt::format("reducescatter supports only sum and average, but {} requests {}",
                                           request.name, name_of(request.reduce_op))};
      }
      [[fallthrough]];
    case Kind::allgather:
    case Kind::alltoall: return find_scalar_violation(request);
    case Kind::add_process_set:
    case Kind::form_process_set: return find_new_set_violation(request, sets, world_size);
    case Kind::remove_process_set:
    case Kind::leave_process_set:
      if (request.process_set == kWorldSet) return precondition("process set 0, the world, cannot be removed");
      if (!is_pair(request.process_set) && sets.ranks(request.process_set) != nullptr) return {};
      return precondition(fmt::format("process set {} does not exist", request.process_set));
  }
  return {};
}

}  // namespace hvd
