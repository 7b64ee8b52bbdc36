// What the ranks below a node of the negotiation tree have submitted, and the rules for submissions: process sets,
// joins, and messages that cross a removal or a failure. Used by the root (Readiness) and every Aggregator.
//
// Positions. A rank that submits a request has processed the down messages up to some number, its position. For an
// arrival that crossed a down message, the position determines its meaning:
//   - below the message that failed the name: that message failed it, there is nothing left to do;
//   - below the message that removed the process set: it was for the set that is gone.
// Thread rule: one caller at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/process_sets.h"
#include "negotiation/joins.h"
#include "negotiation/request_table.h"
#include "negotiation/subtrees.h"

namespace hvd {

// A protocol error: a Negotiator that follows the plans does not do this.
Status broken(Rank rank, std::string_view what);

class Gathering {
 public:
  Gathering(int32_t world_size, Subtrees tree);

  // Whether it was submitted before the rank knew that the name has failed, or that the set was removed.
  bool precedes_failure(const Entry& entry, uint64_t position) const { return position < entry.failed_in; }
  bool precedes_removal(int32_t process_set, uint64_t position) const {
    return !removals_.empty() && position < removed_in(process_set);
  }

  // Not ok: a Negotiator that follows the plans does not submit this.
  Status check(const Entry& entry, const Arrival& arrival) const {
    bool is_plain = arrival.some == nullptr && entry.key.process_set == kWorldSet && joined().empty() &&
                    arrival.request->kind != Kind::form_process_set && entry.submitted.is_by_child() &&
                    !entry.submitted.contains_whole(arrival.child);
    return is_plain ? Status() : check_closely(entry, arrival);
  }
  // Records the arrival.
  void record(Entry& entry, Arrival&& arrival, bool precedes_removal = false);
  // Clears the debts of the arrival's ranks. True: some of them owed something.
  bool pay(Entry& entry, const Arrival& arrival) { return !entry.owing.empty() && pay_debts(entry, arrival); }
  // All members below this node have submitted, or are excused by having joined.
  bool is_complete(const Entry& entry) const;
  // All ranks that an arrival represents; if it precedes the removal of the set, those of the removed set.
  std::vector<int32_t> ranks_of(const Arrival& arrival, int32_t process_set, bool precedes_removal) const;

  // Takes effect for all later submissions; returns the id of the set.
  int32_t add_set(const std::vector<int32_t>& ranks);
  // Removes the set. Every rank learns this from a later message; removal_sent() then sets its number.
  void remove_set(int32_t process_set);
  void removal_sent(int32_t process_set, uint64_t message) { removals_.at(process_set).message = message; }
  // The message that last removed the set of this id; 0: none.
  uint64_t removed_in(int32_t process_set) const;

  // The ranks that must submit the request. The entry owns them if they do not form a set yet.
  const Members& members_of(Entry& entry, const Request& request) const;
  // Null: no such set.
  const Members* members(int32_t process_set) const { return process_set == kWorldSet ? world_ : find(process_set); }
  const ProcessSets& sets() const { return sets_; }
  const Subtrees& tree() const { return tree_; }
  RequestTable& table() { return table_; }
  const RequestTable& table() const { return table_; }
  Joins& joins() { return joins_; }
  const RankSet& joined() const { return joins_.ranks(); }

 private:
  struct Removal {
    uint64_t message = UINT64_MAX;  // not sent yet
    Members members;
  };

  bool leaves_out_joined(const Arrival& arrival, int32_t process_set) const;
  bool pay_debts(Entry& entry, const Arrival& arrival);
  Status check_closely(const Entry& entry, const Arrival& arrival) const;
  Status check_whole(const Entry& entry, const Arrival& arrival, const Members& members) const;
  Status check_rank(const Entry& entry, const Arrival& arrival, Rank rank) const;

  const Members* find(int32_t process_set) const;

  Subtrees tree_;
  ProcessSets sets_;
  RequestTable table_;
  Joins joins_;
  mutable std::map<int32_t, Members> members_;  // by process set; pairs are added when they are first looked up
  const Members* world_;                        // an entry of members_
  std::map<int32_t, Removal> removals_;         // process sets that existed earlier; their ids may be in use again
};

}  // namespace hvd
