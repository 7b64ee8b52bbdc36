// The process sets of a world: which ranks belong to which id. Every rank holds the same table because adding and
// removing are plans. Ids of removed sets are used again, first removed first; a serial number never is.
// Thread rule: one caller at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/status.h"
#include "model/request.h"

namespace hvd {

// Every two ranks are a set of their own from the start, for what one sends to the other; a rank and itself are one, too.
// Their ids are negative and follow from the ranks, so nobody has to add them. Ranks of the world, in any order.
int32_t pair_set(int32_t a, int32_t b);
constexpr bool is_pair(int32_t id) { return id < 0; }

// Why an operation on a set fails that is gone before all its ranks have submitted it.
Status process_set_removed(int32_t id);

class ProcessSets {
 public:
  explicit ProcessSets(int32_t world_size);

  const std::vector<int32_t>* ranks(int32_t id) const;  // sorted; nullptr: no such set
  bool contains(int32_t id, Rank rank) const { return position(id, rank).has_value(); }
  std::optional<int32_t> position(int32_t id, Rank rank) const;  // rank inside the set
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
