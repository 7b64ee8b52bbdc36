// The names known to a node of the negotiation tree: one Entry per (process set, name), from the first arrival until it
// is no longer referenced. Entries of cached names stay, so that the steady state allocates nothing. Thread rule: one
// caller at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "model/plan.h"
#include "negotiation/attendance.h"
#include "negotiation/carried.h"
#include "negotiation/messages.h"
#include "negotiation/name_key.h"
#include "negotiation/rank_set.h"
#include "negotiation/subtrees.h"

namespace hvd {

struct CachedPlan;
struct Group;

// The members of a process set that are below a node.
struct Members {
  std::vector<int32_t> ranks;     // sorted
  std::vector<int32_t> by_child;  // number of members below each child
  std::vector<int32_t> lowest;    // lowest member below each child; -1: none

  Members() = default;
  Members(const Subtrees& tree, const std::vector<int32_t>& set);
  int32_t below(Child child) const { return by_child[static_cast<size_t>(index_of(child))]; }
  Rank lowest_below(Child child) const { return Rank{lowest[static_cast<size_t>(index_of(child))]}; }
};

using DeviceMap = std::shared_ptr<const std::vector<Device>>;  // by rank of the world
using RankList = std::unique_ptr<const std::vector<int32_t>>;  // sorted

// A child's submission of a name: for itself, for its whole subtree, or for some of the ranks below it. All these ranks
// sent the same request (same_signature); `request` is that of the lowest of them.
struct Arrival {
  Rank rank{0};  // the lowest rank it represents
  Child child{0};
  RankList some;          // null: all members below the child that have not joined
  CacheId id = 0;         // 0: sent in full
  AgreedRequest request;  // if `id` is not 0: the request agreed under it, not the one this rank sent
  Device device = kHost;  // where the tensor is, on one rank
  DeviceMap devices;      // not null: on several
  TimePoint since;
  ByteView data;  // not empty: carried (carried.h); valid while its message is read

  bool speaks_for(Rank other, const Subtrees& tree) const {
    if (some != nullptr) return std::binary_search(some->begin(), some->end(), index_of(other));
    return child == tree.child_of(other);
  }
  Device device_of(Rank other) const {
    return devices == nullptr ? device : (*devices)[static_cast<size_t>(index_of(other))];
  }
};

struct Entry {
  enum class State : uint8_t {
    idle,        // no rank has it pending
    collecting,  // some ranks submitted
    held,        // all ranks submitted; waits for the rest of its group
    ready,       // all ranks submitted; the plan is about to be sent
    failing,     // given up; the error is about to be sent, arrivals until then share it
  };

  Entry(NameView name, const Subtrees& tree) : key(name), submitted(tree), owing(tree.end_rank()) {}

  NameKey key;
  State state = State::idle;

  // While not idle.
  const Members* members = nullptr;               // of the process set; null once ready or failing
  std::unique_ptr<const Members> future_members;  // form_process_set: `members` points to them
  int32_t set_size = 0;                           // those below this node
  TimePoint since;                                // time of the first arrival
  std::vector<Arrival> arrivals;
  Attendance submitted;
  std::vector<Group*> groups;  // named by any rank; more than one is a mismatch
  Entry* older = nullptr;      // neighbours in the list of entries
  Entry* newer = nullptr;
  bool is_listed = false;

  CarriedAtRoot carried;  // only in a Coordinator of two ranks

  CachedPlan* cached = nullptr;  // the live cache entry of this name
  int32_t evicted_plans = 0;     // cache entries of this name that ranks may still refer to

  // Ranks that have not yet submitted a request that failed on the others; they will get the same error.
  RankSet owing;
  Status owed;
  // The last down message that failed the name, 0 once all ranks have acknowledged it. It fails everything that a rank
  // submitted before it had processed that message.
  uint64_t failed_in = 0;

  bool is_probed = false;  // a transfer that a probe of its receiver has found; only in a Coordinator

  // Only in an Aggregator.
  size_t passed_on = 0;  // number of arrivals that were passed on
  bool at_once = false;  // pass further arrivals on at once

  bool is_open() const { return state == State::collecting || state == State::held; }
};

class RequestTable {
 public:
  explicit RequestTable(const Subtrees& tree) : tree_(tree) {}

  Entry* find(NameView name);
  Entry& find_or_add(NameView name);
  // Forgets the entry if it is idle and nothing refers to it.
  void release(Entry& entry);
  size_t size() const { return entries_.size(); }

  // The open entries (collecting or held) that are listed, oldest first: follow `newer`.
  Entry* oldest() const { return oldest_; }
  void open(Entry& entry, const Members& members, TimePoint since);
  // Sets an earlier time for the first arrival.
  void backdate(Entry& entry, TimePoint since);
  // Removes the entry from the list; it stays open.
  void unlist(Entry& entry);
  // Closes the entry; its arrivals stay.
  void settle(Entry& entry, Entry::State state);
  // Back to idle, ready for the next use of the name.
  void reset(Entry& entry);
  // The open entries of a process set, listed or not, oldest first.
  std::vector<Entry*> open_in(int32_t process_set);
  // Ranks owe nothing on this set any more.
  void forgive(int32_t process_set);

  // The error of the name is in the down message of that number.
  void failed(Entry& entry, uint64_t message);
  // The oldest failure that some rank has not acknowledged; 0: none.
  uint64_t awaits() const { return failures_.empty() ? 0 : failures_.front().message; }
  // Every rank has processed the messages up to this one.
  void forget_failures(uint64_t processed_by_all);

  const Subtrees& tree() const { return tree_; }

 private:
  struct Failure {
    uint64_t message;
    Entry* entry;
  };

  void list(Entry& entry);

  const Subtrees& tree_;
  NameMap<Entry> entries_;
  Entry* oldest_ = nullptr;
  Entry* newest_ = nullptr;
  std::deque<Failure> failures_;  // oldest first
};

// Whether ranks that have joined may be missing. The entry has at least one arrival, which determines this.
bool excuses_joined(const Entry& entry);
// The sorted members that the open entry waits for: they have neither submitted nor are excused by having joined.
std::vector<int32_t> missing_ranks(const Entry& entry, const RankSet& joined);
// The sorted ranks that wait in the entry.
std::vector<int32_t> waiting_ranks(const Entry& entry);

}  // namespace hvd
