#include "model/process_sets.h"

#include <fmt/core.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

namespace hvd {

Status process_set_removed(int32_t id) { return {Code::precondition, fmt::format("process set {} was removed", id)}; }

ProcessSets::ProcessSets(int32_t world_size) {
  std::vector<int32_t> all(static_cast<size_t>(world_size));
  std::iota(all.begin(), all.end(), 0);
  sets_.emplace(kWorldSet, std::move(all));
}

// Pairs in a row: 0-0, 0-1, 1-1, 0-2, ... Pair k has the id -1 - k.
int32_t pair_set(int32_t a, int32_t b) {
  int64_t high = std::max(a, b), low = std::min(a, b);
  return static_cast<int32_t>(-1 - (high * (high + 1) / 2 + low));
}

const std::vector<int32_t>* ProcessSets::find_pair(int32_t id) const {
  auto found = pairs_.find(id);
  if (found != pairs_.end()) return &found->second;
  int64_t number = -1 - static_cast<int64_t>(id);
  auto high = static_cast<int64_t>((std::sqrt(8.0 * static_cast<double>(number) + 1.0) - 1.0) / 2.0);
  while (high * (high + 1) / 2 > number) high--;
  while ((high + 1) * (high + 2) / 2 <= number) high++;
  if (high >= static_cast<int64_t>(sets_.at(kWorldSet).size())) return nullptr;
  auto low = static_cast<int32_t>(number - high * (high + 1) / 2);
  std::vector<int32_t> ranks{low};
  if (low != high) ranks.push_back(static_cast<int32_t>(high));
  return &pairs_.emplace(id, std::move(ranks)).first->second;
}

const std::vector<int32_t>* ProcessSets::ranks(int32_t id) const {
  if (is_pair(id)) return find_pair(id);
  auto found = sets_.find(id);
  return found == sets_.end() ? nullptr : &found->second;
}

std::optional<int32_t> ProcessSets::position(int32_t id, Rank rank) const {
  const std::vector<int32_t>* members = ranks(id);
  if (members == nullptr) return std::nullopt;
  auto found = std::lower_bound(members->begin(), members->end(), index_of(rank));
  if (found == members->end() || *found != index_of(rank)) return std::nullopt;
  return static_cast<int32_t>(found - members->begin());
}

std::optional<int32_t> ProcessSets::find(const std::vector<int32_t>& sorted_ranks) const {
  for (const auto& [id, members] : sets_) {
    if (members == sorted_ranks) return id;
  }
  return std::nullopt;
}

std::vector<int32_t> ProcessSets::ids() const {
  std::vector<int32_t> ids;
  for (const auto& [id, members] : sets_) ids.push_back(id);
  return ids;
}

uint64_t ProcessSets::serial(int32_t id) const {
  auto found = serials_.find(id);
  return found == serials_.end() ? 0 : found->second;
}

int32_t ProcessSets::add(std::vector<int32_t> sorted_ranks) {
  assert(!find(sorted_ranks));
  int32_t id = next_id_;
  if (free_ids_.empty()) {
    next_id_++;
  } else {
    id = free_ids_.front();
    free_ids_.pop_front();
  }
  sets_.emplace(id, std::move(sorted_ranks));
  serials_[id] = ++added_;
  return id;
}

void ProcessSets::remove(int32_t id) {
  assert(id != kWorldSet && sets_.contains(id));
  sets_.erase(id);
  serials_.erase(id);
  free_ids_.push_back(id);
}

}  // namespace hvd
