// A node of the negotiation tree below the root: combines the submissions of the ranks below it into one stream for the
// node above. A request that all of them have submitted becomes one item; the cached requests of a whole step become a
// run of numbers. Pure: no threads, sockets or clocks. Thread rule: one caller at a time.
//
// The engine of every host's leader has one, except on the root's host and on hosts whose subtree is a single rank: its
// Negotiator sends directly to the node above. Its children are the ranks of its host, including its own, and the
// leaders of the hosts below. The engine of the root has a Coordinator with the same kinds of children.
//
//   up      for each local rank and each leader below: receive(rank, message, now)
//           flush(now, out): send `out` to the leader above, for whose node it is a message of any rank below this one
//   down    follow(message), then send the message, unchanged, to the leaders below and to the local ranks
//
// What goes up when. A name goes up once all members of its process set below have submitted it (or have joined). Until
// then it is held. It goes up with the list of ranks that have submitted it, as do all further arrivals of it, once
//   - it has been held for the hold time, or a node below has passed it on: the root must be able to report a stall;
//   - the ranks that have submitted it differ in what they ask for: the root must be able to report the difference;
//   - one of them joins: a join never overtakes what its rank submitted before;
//   - a down message fails it, removes its process set, or evicts the cache id it was submitted under: nothing that was
//     written before a message is read as if it was written after it;
//   - a rank below had not submitted it when it failed before: the root has the answer;
//   - another member of its group goes up in this way: the root must know a group before one of its members fails.
//
// What may overtake what. Submissions of one rank for different names may arrive in any order, and after
// acknowledgements that the rank wrote later. That is safe because a node compares positions (gathering.h) only with
// messages that fail the very name or remove its process set, and evicted ids are only looked up; and when such a
// message comes down, held arrivals of that name go up before any acknowledgement of it. So the ranks that submitted an
// item knew of such a message if and only if it was acknowledged before the item, or the item says so (`knows`,
// subtree_messages.h). Members of a group that all ranks submit in one order go up in that order.
//
// What the root does not know: it sees arrivals held by nodes below only when they go up. Until then its reports may
// claim that a rank that has waited for less than the hold time has nothing pending.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/wire.h"
#include "model/request.h"
#include "negotiation/coordinator.h"

namespace hvd {

struct AggregatorSettings {
  Duration hold = Duration::max();  // longest time to hold a name; max: no limit
};

// A tenth of the time after which the root reports or fails incomplete requests; no limit if it does neither.
Duration hold_time(const CoordinatorSettings& root);

class Aggregator {
 public:
  // The ranks below each child: see Subtrees.
  Aggregator(int32_t world_size, const std::vector<std::vector<int32_t>>& children, AggregatorSettings settings);
  ~Aggregator();

  // Processes one message of the child that the rank is below (or is itself). Not ok: neither a Negotiator nor an
  // Aggregator writes such a message; the child is broken.
  Status receive(Rank rank, ByteView message, TimePoint now);

  // Processes one message of the root, before any child does. Not ok: not the next message of a coordinator.
  Status follow(ByteView message, TimePoint now);

  // Appends the next message for the node above to `out` and returns true; false: there is nothing to send.
  bool flush(TimePoint now, Bytes& out);

  // When flush() must run again even if nothing arrives; kNever if it need not.
  TimePoint next_deadline() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace hvd
