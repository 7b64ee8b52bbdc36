#include "model/process_sets.h"

#include <fmt/core.h>

#include <algorithm>
#include <cassert>
#include <numeric>

namespace hvd {

Status process_set_removed(int32_t id) { return {Code::precondition, fmt::format("process set {} was removed", id)}; }

ProcessSets::ProcessSets(int32_t world_size) {
  std::vector<int32_t> all(static_cast<size_t>(world_size));
  std::iota(all.begin(), all.end(), 0);
  sets_.emplace(kWorldSet, std::move(all));
}

const std::vector<int32_t>* ProcessSets::ranks(int32_t id) const {
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
