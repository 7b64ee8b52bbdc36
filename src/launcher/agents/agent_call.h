// How an agent that was started by hand, or invited, connects to its launcher. Thread rule: one thread; calls block.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "launcher/agents/invitation.h"
#include "launcher/command_line/options.h"
#include "launcher/processes/signals.h"
#include "net/stream.h"

namespace hvd::launcher {

struct Rendezvous {
  std::string host;  // may be empty for the side that listens
  uint16_t port = 0;
};
Result<Rendezvous> parse_rendezvous(std::string_view text);  // host:port, [fd00::2]:port, :port

// Retries until it is connected or refused, a signal arrives, or the start time-out, if there is one, is over.
Result<std::unique_ptr<Stream>> call_launcher(const Options& options, Signals& signals);

// Accepts an invitation, until it expires. The launcher knows the fingerprint of `own`, a TLS identity.
Result<std::unique_ptr<Stream>> call_back(const Invitation& invitation, const std::string& own, Signals& signals);

}  // namespace hvd::launcher
