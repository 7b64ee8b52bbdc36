// How this rank comes to decisions with the others: its place in the negotiation. Every rank has a Negotiator; the root
// also has the Coordinator. Requests go to the root through the transport, decisions come back the same way.
// Used by the engine. Thread rule: the thread that drives.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "model/config.h"
#include "model/plan.h"
#include "model/world.h"
#include "negotiation/coordinator.h"
#include "negotiation/negotiator.h"
#include "transport/transport.h"

namespace hvd {

class Agreement {
 public:
  // `observer` sees the negotiation at the root; it and the rest must outlive this.
  Agreement(const World& world, const Config& config, const CoordinatorSettings& settings, Transport& transport,
            NegotiationObserver* observer);

  void announce(const Request& request) { negotiator_.announce(request); }
  void announce_shutdown(std::string reason) { negotiator_.announce_shutdown(std::move(reason)); }

  // Passes on what has been announced and what has arrived; appends what has been decided.
  void progress(std::vector<Decision>& decisions);
  bool has_incoming() const { return transport_.has_incoming(); }  // cheap
  // When progress() must run although nothing arrives.
  TimePoint next_deadline() const;
  // A root that does not read is reported, and given up after the collective time-out: the coordinator explains who is
  // missing, unless it is the root that is stuck.
  void watch_root();
  Coordinator* coordinator() const { return coordinator_.get(); }  // null: this rank is not the root

 private:
  void progress_root(std::vector<Decision>& decisions);
  void progress_member(std::vector<Decision>& decisions);
  void decide(TimePoint now, std::vector<Decision>& decisions);

  const World& world_;
  const Config& config_;
  Transport& transport_;
  Negotiator negotiator_;
  std::unique_ptr<Coordinator> coordinator_;
  Bytes outgoing_;
  TimePoint unread_since_ = kNever;  // the root has not read our requests since
  TimePoint next_root_warning_{};
};

}  // namespace hvd
