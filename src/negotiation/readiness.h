// Collects the submissions of the ranks and returns the ready requests: complete and agreed, or failed. Implements the
// rules for process sets, groups, joins and late arrivals; independent of the cache, fusion and the encoding. Thread
// rule: one caller at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "model/plan.h"
#include "model/process_sets.h"
#include "negotiation/coordinator.h"
#include "negotiation/gathering.h"
#include "negotiation/groups.h"
#include "negotiation/request_table.h"

namespace hvd {

struct Ready {
  Entry* entry = nullptr;  // null: the join of all ranks
  AgreedRequest request;
  Status error;
  int32_t result = -1;
};

class Readiness {
 public:
  Readiness(Subtrees tree, NegotiationObserver* observer);

  // A child submits a request, for itself or the ranks below it, which had processed the down messages up to
  // `position`. Not ok: a Negotiator that follows the plans does not do this.
  Status submit(Entry& entry, Arrival&& arrival, uint64_t position, TimePoint now);
  Status join(Rank rank, AgreedRequest request, TimePoint now);
  // Call after a message has been read: requests that it completed are ready now. Not earlier, because all members of a
  // group must be known before one of them fails.
  void finish_message(TimePoint now);

  // Fails the open entry: ranks that have not submitted it yet will get the same error.
  void fail(Entry& entry, Status error, TimePoint now);

  // With this arrival both ranks have carried it (carried.h): no plan follows.
  void settle_carried(Entry& entry, Arrival&& arrival);

  // In the order in which things became ready.
  const std::vector<Ready>& ready() const { return ready_; }
  TimePoint ready_since() const { return ready_since_; }
  // All ready requests have been sent, in the message of that number: their names may be used again.
  void finish_ready(uint64_t message);
  // Later joins count as later than those before.
  void end_cycle() { gathering_.joins().end_cycle(); }

  RequestTable& table() { return gathering_.table(); }
  const RequestTable& table() const { return gathering_.table(); }
  const ProcessSets& sets() const { return gathering_.sets(); }
  const RankSet& joined() const { return gathering_.joined(); }
  const Gathering& gathering() const { return gathering_; }

 private:
  void answer_late(Entry& entry, Arrival&& arrival, Status error, bool precedes_removal, TimePoint now);
  void record(Entry& entry, Arrival&& arrival);
  void complete(Entry& entry, TimePoint now);
  void answer_probes(TimePoint now);
  Entry* find_sent(const Entry& probe) const;
  Status judge(Entry& entry) const;
  Status judge_group(const Entry& entry) const;
  Status judge_joins(const Entry& entry) const;
  int32_t change_sets(const Request& request, TimePoint now);
  void reject(Entry& entry, Status error, TimePoint now);
  void push(Entry* entry, AgreedRequest request, Status error, int32_t result, TimePoint now);

  // Null: no observer.
  NegotiationObserver* observer() const {
    return observer_ != nullptr && observer_->is_watching() ? observer_ : nullptr;
  }

  int32_t world_size_;
  NegotiationObserver* observer_;
  Gathering gathering_;
  Groups groups_;
  std::vector<NameKey> probes_;    // without an answer, oldest first
  std::vector<Entry*> completed_;  // by the current message; some may still fail
  std::vector<Ready> ready_;
  TimePoint ready_since_;
};

}  // namespace hvd
