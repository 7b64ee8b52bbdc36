#include "negotiation/gathering.h"

#include <fmt/core.h>

#include <algorithm>
#include <cassert>
#include <utility>

namespace hvd {

Status broken(Rank rank, std::string_view what) {
  return {Code::unknown, fmt::format("rank {} broke the negotiation protocol: {}", index_of(rank), what)};
}

Gathering::Gathering(int32_t world_size, Subtrees tree)
    : tree_(std::move(tree)), sets_(world_size), table_(tree_), joins_(world_size) {
  world_ = &members_.emplace(kWorldSet, Members(tree_, *sets_.ranks(kWorldSet))).first->second;
}

const Members* Gathering::find(int32_t process_set) const {
  auto found = members_.find(process_set);
  if (found != members_.end()) return &found->second;
  const std::vector<int32_t>* ranks = is_pair(process_set) ? sets_.ranks(process_set) : nullptr;
  return ranks == nullptr ? nullptr : &members_.emplace(process_set, Members(tree_, *ranks)).first->second;
}

const Members& Gathering::members_of(Entry& entry, const Request& request) const {
  if (request.kind != Kind::form_process_set) return *members(entry.key.process_set);
  entry.future_members = std::make_unique<const Members>(tree_, request.ranks);
  return *entry.future_members;
}

uint64_t Gathering::removed_in(int32_t process_set) const {
  auto removal = removals_.find(process_set);
  return removal == removals_.end() ? 0 : removal->second.message;
}

Status Gathering::check_closely(const Entry& entry, const Arrival& arrival) const {
  const NameKey& key = entry.key;
  const Members* set = members(key.process_set);
  if (set == nullptr) {
    return broken(arrival.rank, fmt::format("{} is for the unknown process set {}", key.name, key.process_set));
  }
  if (arrival.some == nullptr && !tree_.is_single(arrival.child)) return check_whole(entry, arrival, *set);
  if (arrival.some == nullptr) return check_rank(entry, arrival, arrival.rank);
  for (int32_t rank : *arrival.some) {
    if (Status status = check_rank(entry, arrival, Rank{rank}); !status.ok()) return status;
  }
  return {};
}

// No per-rank work: a whole subtree must cost no more than a rank.
Status Gathering::check_whole(const Entry& entry, const Arrival& arrival, const Members& members) const {
  const NameKey& key = entry.key;
  if (members.below(arrival.child) == 0) {
    return broken(arrival.rank,
                  fmt::format("{} is for process set {}, which no rank below it is in", key.name, key.process_set));
  }
  if (entry.submitted.contains_whole(arrival.child)) {
    return broken(arrival.rank, fmt::format("{} was submitted twice", key.name));
  }
  bool is_set = arrival.request->kind != Kind::form_process_set;
  if (is_set && entry.submitted.is_by_child() && !leaves_out_joined(arrival, key.process_set)) return {};
  std::vector<int32_t> ranks = ranks_of(arrival, key.process_set, false);
  if (ranks.empty()) return broken(arrival.rank, fmt::format("{} was submitted by no rank", key.name));
  for (int32_t rank : ranks) {
    if (Status status = check_rank(entry, arrival, Rank{rank}); !status.ok()) return status;
  }
  return {};
}

Status Gathering::check_rank(const Entry& entry, const Arrival& arrival, Rank rank) const {
  const NameKey& key = entry.key;
  if (key.process_set != kWorldSet && !sets_.contains(key.process_set, rank)) {
    return broken(rank, fmt::format("{} is for process set {}, which it is not in", key.name, key.process_set));
  }
  if (entry.submitted.contains(rank)) return broken(rank, fmt::format("{} was submitted twice", key.name));
  const Request& request = *arrival.request;
  bool is_stranger = request.kind == Kind::form_process_set &&
                     !std::binary_search(request.ranks.begin(), request.ranks.end(), index_of(rank));
  if (is_stranger) return broken(rank, fmt::format("{} forms a process set without it", key.name));
  bool may_submit =
      key.process_set != kWorldSet || manages_sets(arrival.request->kind) || !joins_.ranks().contains(rank);
  if (may_submit) return {};
  return broken(rank, fmt::format("{} was submitted after the rank had joined", key.name));
}

bool Gathering::leaves_out_joined(const Arrival& arrival, int32_t process_set) const {
  return process_set == kWorldSet && !joins_.ranks().empty() && !manages_sets(arrival.request->kind);
}

std::vector<int32_t> Gathering::ranks_of(const Arrival& arrival, int32_t process_set, bool precedes_removal) const {
  if (arrival.some != nullptr) return *arrival.some;
  if (tree_.is_single(arrival.child)) return {index_of(arrival.rank)};
  const Members* set = precedes_removal ? &removals_.at(process_set).members : members(process_set);
  bool without_joined = leaves_out_joined(arrival, process_set);
  const std::vector<int32_t>* sorted = set == nullptr ? nullptr : &set->ranks;
  if (arrival.request != nullptr && arrival.request->kind == Kind::form_process_set) sorted = &arrival.request->ranks;
  std::vector<int32_t> ranks;
  for (int32_t rank : tree_.ranks(arrival.child)) {
    if (sorted == nullptr || !std::binary_search(sorted->begin(), sorted->end(), rank)) continue;
    if (!without_joined || !joins_.ranks().contains(Rank{rank})) ranks.push_back(rank);
  }
  return ranks;
}

void Gathering::record(Entry& entry, Arrival&& arrival, bool precedes_removal) {
  Child child = arrival.child;
  int32_t set = entry.key.process_set;
  bool as_child = arrival.some == nullptr && entry.members != nullptr && !precedes_removal &&
                  entry.submitted.is_by_child() && (tree_.is_single(child) || !leaves_out_joined(arrival, set));
  if (as_child) {
    entry.submitted.insert_whole(child, entry.members->below(child));
    arrival.rank = entry.members->lowest_below(child);
  } else {
    std::vector<int32_t> ranks = ranks_of(arrival, set, precedes_removal);
    for (int32_t rank : ranks) entry.submitted.insert(Rank{rank});
    if (!ranks.empty()) arrival.rank = Rank{ranks.front()};
  }
  entry.arrivals.push_back(std::move(arrival));
}

bool Gathering::pay_debts(Entry& entry, const Arrival& arrival) {
  bool paid = false;
  if (arrival.some == nullptr) {
    for (int32_t rank : tree_.ranks(arrival.child)) paid |= entry.owing.erase(Rank{rank});
  } else {
    for (int32_t rank : *arrival.some) paid |= entry.owing.erase(Rank{rank});
  }
  return paid;
}

bool Gathering::is_complete(const Entry& entry) const {
  if (entry.submitted.size() == entry.set_size) return true;
  const RankSet& joined = joins_.ranks();
  if (joined.empty() || entry.submitted.size() + joined.size() < entry.set_size || !excuses_joined(entry)) return false;
  return missing_ranks(entry, joined).empty();
}

int32_t Gathering::add_set(const std::vector<int32_t>& ranks) {
  int32_t id = sets_.add(ranks);
  members_.emplace(id, Members(tree_, ranks));
  return id;
}

void Gathering::remove_set(int32_t process_set) {
  auto found = members_.find(process_set);
  assert(found != members_.end());
  table_.forgive(process_set);
  removals_[process_set] = {.message = UINT64_MAX, .members = std::move(found->second)};
  members_.erase(found);
  sets_.remove(process_set);
}

}  // namespace hvd
