// The launcher's side of an invitation (invitation.h): a port for one agent, a key pair for this one time, and, once
// the agent has answered, the door that lets in whoever has the key that they share. Strangers are turned away
// (net/acceptor.h). Thread rule: one thread; an event loop drives it: add_to(), wait, look().
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "launcher/agents/agent_link.h"
#include "launcher/agents/invitation.h"
#include "launcher/workers/poll_set.h"
#include "net/acceptor.h"

namespace hvd {

class InvitedDoor {
 public:
  // Listens, though nobody is greeted before open(). The invitation counts until `deadline`.
  static Result<std::unique_ptr<InvitedDoor>> create(const std::vector<std::string>& interfaces, TimePoint deadline);

  const Invitation& invitation() const { return invitation_; }
  Status open(std::string_view answer);  // what the agent said on stdout
  bool is_open() const { return acceptor_ != nullptr; }
  void add_to(PollSet& set);
  std::unique_ptr<AgentLink> look();  // to the agent, when it has come

 private:
  InvitedDoor(KeyPair pair, Listener listener, Invitation invitation)
      : pair_(std::move(pair)), listener_(std::move(listener)), invitation_(std::move(invitation)) {}

  KeyPair pair_;
  Listener listener_;  // until it is open
  Invitation invitation_;
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace hvd
