// How this rank agrees on decisions with the others: its position in the tree of the negotiation. Every rank has a
// Negotiator. The ranks of a host communicate with its leader through shared memory; a leader gathers the messages of
// its host and of the hosts below (Aggregator) and forwards them to the leader above over a control link; the leader of
// the first host is the root and decides (Coordinator). Decisions take the same way down. Used by the engine. Thread
// rule: the thread that drives.
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
  // Only for the leader of a host in a world of several hosts.
  struct Node {
    HostLinks* links = nullptr;               // null: a single host, or not the leader; must outlive this
    std::vector<std::vector<int32_t>> below;  // ranks below each child, for Coordinator and Aggregator
  };
  // `observer` is called during negotiation at the root; it and the rest must outlive this.
  Agreement(const World& world, const Config& config, const CoordinatorSettings& settings, Transport& transport,
            NegotiationObserver* observer, Node node);

  // `data`: the tensor, if it should be carried (negotiation/carried.h). True: the plan cache knew the request.
  bool announce(const Request& request, ByteView data) { return negotiator_.announce(request, data); }
  void announce_shutdown(const std::string& reason, const Origin& origin) {
    negotiator_.announce_shutdown(reason, origin);
  }

  // Forwards announcements and received messages; appends decisions.
  void progress(std::vector<Decision>& decisions);
  bool has_incoming();                                                  // is there anything to forward?
  bool has_unread() const { return links_ && links_->has_messages(); }  // read from a link, but not forwarded yet
  // When progress() must run even if nothing arrives. `awaits`: a thread here waits for a decision.
  TimePoint next_deadline(bool awaits = false) const;
  // Reports a leader that does not read, and gives it up after the collective time-out: the coordinator reports missing
  // ranks, unless the leader hangs. A leader that has read everything and sends nothing gets an empty message to read,
  // while a thread awaits a decision.
  void watch_leader(bool awaits);
  // Tells the peers on other hosts that this rank is leaving normally.
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
  // Whether to send empty messages to the leader. If ranks keep watch, its heartbeat is sufficient.
  bool asks_leader() const { return !transport_.is_root() && !keeps_watch(world_, config_); }

  const World& world_;
  const Config& config_;
  Transport& transport_;
  Negotiator negotiator_;
  HostLinks* const links_;
  std::unique_ptr<Coordinator> coordinator_;  // root
  std::unique_ptr<Aggregator> aggregator_;    // leaders below the root that represent more than one rank
  Bytes outgoing_;
  bool heard_ = false;               // since the root's last decision
  TimePoint unread_since_ = kNever;  // time since when the leader has not read our requests
  TimePoint next_warning_{};
  TimePoint next_question_{};
};

}  // namespace hvd
