// What the coordinator knows about names: one Entry per (process set, name), from the first submission until nothing
// refers to it any more. Entries of cached names stay, so that the steady state allocates nothing.
// Thread rule: one caller at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "model/plan.h"
#include "negotiation/name_key.h"
#include "negotiation/rank_set.h"

namespace hvd {

struct CachedPlan;
struct Group;

struct Submission {
  Rank rank{0};
  AgreedRequest request;
  Device device = kHost;  // this rank's; `request` may be the cached one of another rank
  TimePoint since;
};

struct Entry {
  enum class State : uint8_t {
    idle,        // no rank has it pending
    collecting,  // some ranks submitted
    held,        // all ranks submitted; waits for the rest of its group
    ready,       // all ranks submitted; the plan is about to be sent
    failing,     // given up; the error is about to be sent, submissions until then share it
  };

  Entry(NameView name, int32_t world_size) : key(name), submitted(world_size), owing(world_size) {}

  NameKey key;
  State state = State::idle;

  // While not idle.
  const std::vector<int32_t>* members = nullptr;  // of the process set; null once ready or failing
  int32_t set_size = 0;
  TimePoint since;  // first submission
  std::vector<Submission> submissions;
  RankSet submitted;
  std::vector<Group*> groups;  // those that any rank named; more than one is a mismatch
  Entry* older = nullptr;      // neighbours among the open entries
  Entry* newer = nullptr;

  CachedPlan* cached = nullptr;  // the live cache entry of this name
  int32_t evicted_plans = 0;     // cache entries of this name that ranks may still refer to

  // Ranks that have not yet submitted what failed on the others; they get the same error at once.
  RankSet owing;
  Status owed;

  bool is_open() const { return state == State::collecting || state == State::held; }
};

class RequestTable {
 public:
  explicit RequestTable(int32_t world_size) : world_size_(world_size) {}

  Entry* find(NameView name);
  Entry& find_or_add(NameView name);
  // Forgets the entry if it is idle and nothing refers to it.
  void release(Entry& entry);
  size_t size() const { return entries_.size(); }

  // The open entries (collecting or held), oldest first: follow `newer`.
  Entry* oldest() const { return oldest_; }
  void open(Entry& entry, const std::vector<int32_t>& members, TimePoint now);
  // Takes the entry off the open list; its submissions stay.
  void settle(Entry& entry, Entry::State state);
  // Back to idle, ready for the next use of the name.
  void reset(Entry& entry);
  // Ranks owe nothing on this set any more.
  void forgive(int32_t process_set);

 private:
  int32_t world_size_;
  NameMap<Entry> entries_;
  Entry* oldest_ = nullptr;
  Entry* newest_ = nullptr;
};

// The members that have not submitted and have not joined, sorted. The entry is open.
std::vector<int32_t> missing_ranks(const Entry& entry, const RankSet& joined);
// The ranks that wait in the entry, sorted.
std::vector<int32_t> waiting_ranks(const Entry& entry);

}  // namespace hvd
