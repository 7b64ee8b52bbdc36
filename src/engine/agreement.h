// How this rank comes to decisions with the others: its place in the tree of the negotiation. Every rank has a
// Negotiator. The ranks of a host speak to its leader through shared memory; a leader gathers what its host and the
// hosts below say (Aggregator) and speaks to the leader above over a control link; the leader of the first host is the
// root and decides (Coordinator). Decisions take the same way down.
// Used by the engine. Thread rule: the thread that drives.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/host_links.h"
#include "engine/watch.h"
#include "model/config.h"
#include "model/plan.h"
#include "model/world.h"
#include "negotiation/aggregator.h"
#include "negotiation/coordinator.h"
#include "negotiation/negotiator.h"
#include "transport/transport.h"

namespace hvd {

class Agreement {
 public:
  // What the leader of a host has in a world of several.
  struct Node {
    HostLinks* links = nullptr;               // null: a single host, or not the leader; must outlive this
    std::vector<std::vector<int32_t>> below;  // ranks below each child, as Coordinator and Aggregator want them
  };
  // `observer` sees the negotiation at the root; it and the rest must outlive this.
  Agreement(const World& world, const Config& config, const CoordinatorSettings& settings, Transport& transport,
            NegotiationObserver* observer, Node node);

  // `data`: the tensor, if it shall be carried (negotiation/carried.h). True: the plan cache knew the request.
  bool announce(const Request& request, ByteView data) { return negotiator_.announce(request, data); }
  void announce_shutdown(const std::string& reason, const Origin& origin) {
    negotiator_.announce_shutdown(reason, origin);
  }

  // Passes on what has been announced and what has arrived; appends what has been decided.
  void progress(std::vector<Decision>& decisions);
  bool has_incoming();                                                  // is there anything to pass on?
  bool has_unread() const { return links_ && links_->has_messages(); }  // read from a link, and not passed on yet
  // When progress() must run although nothing arrives. `awaits`: a thread here waits for a decision.
  TimePoint next_deadline(bool awaits = false) const;
  // A leader that does not read is reported, and given up after the collective time-out: the coordinator explains who
  // is missing, unless the leader is stuck. One that has read everything and says nothing gets an empty message to
  // read, while a thread awaits a decision.
  void watch_leader(bool awaits);
  // Tells the peers on other hosts that this rank leaves in order.
  void leave(TimePoint until);
  void list_descriptors(std::vector<int>& into) const {  // any thread
    if (links_) links_->list_descriptors(into);
  }
  Coordinator* coordinator() const { return coordinator_.get(); }  // null: this rank is not the root

 private:
  void progress_leader(std::vector<Decision>& decisions);
  void progress_member(std::vector<Decision>& decisions);
  void gather(int32_t rank, ByteView message, TimePoint now);
  void spread(ByteView message, TimePoint now, std::vector<Decision>& decisions);
  void hear(ByteView message, std::vector<Decision>& decisions);
  Status sent_nonsense(const Status& status) const;  // by the root
  // Whether the leader is sent questions. Where ranks keep watch its heartbeat tells as much.
  bool asks_leader() const { return !transport_.is_root() && !keeps_watch(world_, config_); }

  const World& world_;
  const Config& config_;
  Transport& transport_;
  Negotiator negotiator_;
  HostLinks* const links_;
  std::unique_ptr<Coordinator> coordinator_;  // root
  std::unique_ptr<Aggregator> aggregator_;    // leaders below it with more than one rank to speak for
  Bytes outgoing_;
  bool heard_ = false;               // since the root decided last
  TimePoint unread_since_ = kNever;  // the leader has not read our requests since
  TimePoint next_warning_{};
  TimePoint next_question_{};
};

}  // namespace hvd
