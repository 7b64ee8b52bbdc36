// The launcher's side of an invitation (invitation.h): a port and a certificate for one agent. Once the agent has
// answered, connections are accepted from that agent only (net/acceptor.h). Thread rule: one thread; an event loop
// drives it: add_to(), wait, look().
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "launcher/agents/agent_link.h"
#include "launcher/agents/invitation.h"
#include "launcher/processes/poll_set.h"
#include "net/acceptor.h"

namespace hvd::launcher {

class InvitedDoor {
 public:
  // Listens; connections wait until open(). The invitation is valid until `deadline`.
  static Result<std::unique_ptr<InvitedDoor>> create(const std::vector<std::string>& interfaces, TimePoint deadline);

  const Invitation& invitation() const { return invitation_; }
  Status open(std::string_view answer);  // the answer that the agent printed on stdout
  bool is_open() const { return acceptor_ != nullptr; }
  void add_to(PollSet& set);
  std::unique_ptr<AgentLink> look();  // the agent's connection, once it is established

 private:
  InvitedDoor(std::string identity, Listener listener, Invitation invitation)
      : identity_(std::move(identity)), listener_(std::move(listener)), invitation_(std::move(invitation)) {}

  std::string identity_;
  Listener listener_;  // until open()
  Invitation invitation_;
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace hvd::launcher
