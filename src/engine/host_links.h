// The control links of a host's leader: to the leader above and to those below in the tree of hosts. Moves their bytes
// and tells the transport when a peer is lost or reports a failure; a failure here is sent to all of them. Thread rule:
// the thread that drives (Agreement), and the watch, which keeps the links going while the driver is busy; of the two
// only the driver sends and receives.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/wire.h"
#include "net/control_link.h"
#include "transport/transport.h"

namespace hvd {

class HostLinks {
 public:
  struct Child {
    int32_t rank = 0;  // of the world: the leader
    std::unique_ptr<ControlLink> link;
  };

  // `parent` is null at the root.
  static Result<std::unique_ptr<HostLinks>> create(Transport& transport, std::unique_ptr<ControlLink> parent,
                                                   std::vector<Child> children);

  void progress(TimePoint now);
  bool has_messages() const;
  TimePoint next_deadline() const;  // for unsent data
  TimePoint next_beat() const;      // for heartbeats, ours or a peer's

  bool is_root() const { return parent_ == nullptr; }
  void send_up(ByteView message);
  void send_down(ByteView message);
  bool receive_down(ByteView& message) { return parent_ != nullptr && receive(*parent_, message); }
  template <class Visit>
  void receive_up(Visit&& visit) {  // visit(rank, message) for all messages from below
    ByteView message;
    for (Child& child : children_) {
      while (receive(*child.link, message)) visit(child.rank, message);
    }
  }

  void list_descriptors(std::vector<int>& into) const {  // any thread
    each([&](const ControlLink& link) { into.push_back(link.descriptor()); });
  }

  // Tells the peers about the failure, if there was one, and that the end of the links is not a failure; waits until
  // everything has been sent.
  void leave(TimePoint until);

 private:
  HostLinks(Transport& transport, std::unique_ptr<ControlLink> parent, std::vector<Child> children);
  // Requires the mutex.
  void progress(ControlLink& link, TimePoint now);
  void spread_failure();
  bool receive(ControlLink& link, ByteView& message) {
    std::lock_guard lock(mutex_);
    return link.receive(message);
  }
  template <class Visit>
  void each(Visit&& visit) const {
    if (parent_) visit(*parent_);
    for (const Child& child : children_) visit(*child.link);
  }

  Transport& transport_;
  std::unique_ptr<ControlLink> parent_;
  std::vector<Child> children_;
  mutable std::mutex mutex_;  // guards the state of the links; held for single calls, never while a message is handled
};

}  // namespace hvd
