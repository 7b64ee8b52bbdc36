// The root of the negotiation: turns the requests of all ranks into an ordered stream of decisions. Input and output
// are bytes: messages of its children in the negotiation tree (Negotiators of single ranks, Aggregators of several),
// and one message for all ranks. No threads, sockets or clocks, so a test can run any schedule. A child's message about
// all ranks below it costs as much as a message of one rank. Called by the engine of the root rank. Thread rule: one
// caller at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/wire.h"
#include "model/plan.h"
#include "model/request.h"
#include "negotiation/carried.h"

namespace hvd {

struct CoordinatorSettings {
  Tuning tuning;
  size_t cache_capacity = 1024;       // names; 0: no cache
  bool disable_group_fusion = false;  // grouped tensors fuse only within their group
  bool stall_check = true;
  Duration stall_warning = std::chrono::seconds(60);
  Duration stall_shutdown{};  // 0: never
  // 0: none; older requests fail on all ranks, with an error that names the missing ranks
  Duration collective_timeout{};
  std::vector<std::string> rank_names;  // "rank 3 (hostb, pid 4711)", for reports
  CarriedListener* carried = nullptr;   // hears what the root carried (carried.h); null: nothing is. Outlives this
};

// Observes the negotiation; the timeline of the root is an observer.
class NegotiationObserver {
 public:
  virtual ~NegotiationObserver() = default;
  virtual bool is_watching() const = 0;                       // checked before each of the others, which take time
  virtual void on_first_request(const Request& request) = 0;  // negotiation of this name starts
  virtual void on_rank_ready(const Request& request, Rank rank) = 0;
  virtual void on_agreed(const Request& request) = 0;  // complete, or failed
};

class Coordinator {
 public:
  // Every rank of the world is a child of the root.
  Coordinator(int32_t world_size, CoordinatorSettings settings, NegotiationObserver* observer = nullptr);
  // The ranks below each child, together all ranks of the world: see Subtrees.
  Coordinator(const std::vector<std::vector<int32_t>>& children, CoordinatorSettings settings,
              NegotiationObserver* observer = nullptr);
  ~Coordinator();

  // Processes one message of the child that the rank is below (or is itself). Not ok: neither a Negotiator nor an
  // Aggregator writes such a message; the child is broken.
  Status receive(Rank rank, ByteView message, TimePoint now);

  // Appends the next message for all ranks to `out` and returns true; false: there is nothing to send yet.
  bool decide(TimePoint now, Bytes& out);

  // Call after that message has been sent: finishes what the root carried after the other rank had.
  void finish_offered(TimePoint now);

  // When decide() must run again even if nothing arrives (stall check, time-out, linger); kNever if it need not.
  TimePoint next_deadline() const;

  // Takes effect with the next decide(), as a Tuning decision ordered with the plans.
  void tune(const Tuning& tuning);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace hvd
