#include "launcher/agents/invited_door.h"

#include <algorithm>
#include <cmath>

#include "base/joined.h"
#include "launcher/workers/meeting.h"

namespace hvd::launcher {

Result<std::unique_ptr<InvitedDoor>> InvitedDoor::create(const std::vector<std::string>& interfaces,
                                                         TimePoint deadline) {
  auto identity = make_tls_identity();
  if (!identity.ok()) return identity.status();
  auto certificate = fingerprint_of(*identity);
  if (!certificate.ok()) return certificate.status();
  auto listener = listen_on(interfaces);
  if (!listener.ok()) return listener.status();
  Invitation invitation{
      .certificate = *certificate,
      .port = listener->port,
      .seconds = static_cast<int>(std::clamp(std::ceil(seconds_of(deadline - Clock::now())), 1., 1e9)),
      .addresses = joined(published_addresses(listener->endpoints), ",")};
  return std::unique_ptr<InvitedDoor>(
      new InvitedDoor(std::move(*identity), std::move(*listener), std::move(invitation)));
}

Status InvitedDoor::open(std::string_view answer) {
  auto theirs = parse_answer(answer);
  if (!theirs.ok()) return theirs.status();
  auto credentials = invited_credentials(Side::launcher, identity_, *theirs);
  if (!credentials.ok()) return credentials.status();
  auto acceptor = Acceptor::create(std::move(listener_), std::move(*credentials), {.purposes = {Purpose::agent}});
  if (!acceptor.ok()) return acceptor.status();
  acceptor_ = std::move(*acceptor);
  return {};
}

void InvitedDoor::add_to(PollSet& set) {
  if (acceptor_) set.add(acceptor_->descriptor(), POLLIN, [] {});
}

std::unique_ptr<AgentLink> InvitedDoor::look() {
  std::vector<Accepted> accepted;
  if (acceptor_) acceptor_->poll(Clock::now(), accepted);
  if (accepted.empty()) return nullptr;
  // after a retry the agent uses the later connection
  return std::make_unique<AgentLink>(std::move(accepted.back().stream));
}

}  // namespace hvd::launcher
