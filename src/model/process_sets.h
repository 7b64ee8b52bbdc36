// The process sets of a world: the ranks of each id. Every rank has the same table because adding and removing are
// plans. Ids of removed sets are reused, oldest first; serial numbers never are. Thread rule: one caller at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/status.h"
#include "model/request.h"

namespace hvd {

// Every two ranks form a set from the start, for transfers between them; so does a rank with itself, for its probes.
// The negative ids follow from the ranks, so these sets are never added. Ranks of the world, in any order.
int32_t pair_set(int32_t a, int32_t b);
constexpr bool is_pair(int32_t id) { return id < 0; }

// The error of an operation whose set was removed before all its ranks had submitted it.
Status process_set_removed(int32_t id);

class ProcessSets {
 public:
  explicit ProcessSets(int32_t world_size);

  const std::vector<int32_t>* ranks(int32_t id) const;  // sorted; nullptr: no such set
  bool contains(int32_t id, Rank rank) const { return position(id, rank).has_value(); }
  std::optional<int32_t> position(int32_t id, Rank rank) const;  // rank in the set
  std::optional<int32_t> find(const std::vector<int32_t>& sorted_ranks) const;
  std::vector<int32_t> ids() const;
  uint64_t serial(int32_t id) const;  // differs from that of an earlier set with this id; 0: the world, or no such set

  int32_t add(std::vector<int32_t> sorted_ranks);  // the ranks must be new, see find()
  void remove(int32_t id);                         // not kWorldSet

 private:
  const std::vector<int32_t>* find_pair(int32_t id) const;

  std::map<int32_t, std::vector<int32_t>> sets_;
  mutable std::map<int32_t, std::vector<int32_t>> pairs_;  // those that were asked for
  std::map<int32_t, uint64_t> serials_;
  uint64_t added_ = 0;
  std::deque<int32_t> free_ids_;
  int32_t next_id_ = 1;
};

}  // namespace hvd
