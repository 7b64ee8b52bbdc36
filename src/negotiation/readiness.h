// Collects what the ranks submit and tells what is ready: complete and agreed, or failed. Knows the rules about process
// sets, groups, joins and late submissions; knows nothing about the cache, fusion or the wire.
// Thread rule: one caller at a time.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "model/plan.h"
#include "model/process_sets.h"
#include "negotiation/acknowledgements.h"
#include "negotiation/coordinator.h"
#include "negotiation/groups.h"
#include "negotiation/joins.h"
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
  Readiness(int32_t world_size, const Acknowledgements& acknowledgements, NegotiationObserver* observer);

  // A rank submits a request. Not ok: a Negotiator that follows the plans does not do this.
  Status submit(Entry& entry, Submission submission);
  Status join(Rank rank, AgreedRequest request, TimePoint now);

  // Gives the open entry up: ranks that have not submitted it yet will get the same error.
  void fail(Entry& entry, Status error, TimePoint now);

  // In the order in which things became ready.
  const std::vector<Ready>& ready() const { return ready_; }
  TimePoint ready_since() const { return ready_since_; }
  // All that is ready has been sent, in the message of that number: the names may be used again.
  void finish_ready(uint64_t message);
  // Joins from now on are later than those before.
  void end_cycle() { joins_.end_cycle(); }

  RequestTable& table() { return table_; }
  const RequestTable& table() const { return table_; }
  const ProcessSets& sets() const { return sets_; }
  const RankSet& joined() const { return joins_.ranks(); }

 private:
  struct Removal {
    bool sent = false;
    uint64_t message = 0;
  };

  Status check_submission(const Entry& entry, const Submission& submission) const;
  bool precedes_removal(int32_t process_set, Rank rank) const;
  void answer_late(Entry& entry, Submission submission, Status error);
  void record(Entry& entry, Submission submission);
  bool is_complete(const Entry& entry) const;
  void complete(Entry& entry, TimePoint now);
  Status judge(Entry& entry) const;
  Status judge_group(const Entry& entry) const;
  Status judge_joins(const Entry& entry) const;
  int32_t change_sets(const Request& request, TimePoint now);
  void reject(Entry& entry, Status error, TimePoint now);
  void push(Entry* entry, AgreedRequest request, Status error, int32_t result, TimePoint now);

  int32_t world_size_;
  const Acknowledgements& acknowledgements_;
  NegotiationObserver* observer_;
  ProcessSets sets_;
  RequestTable table_;
  Groups groups_;
  Joins joins_;
  std::map<int32_t, Removal> removals_;  // process sets that existed once; their ids may be in use again
  std::vector<Ready> ready_;
  TimePoint ready_since_;
};

}  // namespace hvd
