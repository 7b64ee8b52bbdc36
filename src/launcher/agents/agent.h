// The agent of a host: runs workers there for its launcher, and ends with everything it started when the launcher
// dismisses it, is silent or gone. If the launcher started it over ssh, it uses stdin and stdout, or, without stdin,
// connects to the launcher that invited it. If it was started in any other way, it connects to the launcher too
// (--rendezvous). Thread rule: called once, from main, below a guard.
#pragma once

#include <optional>

#include "launcher/agents/invitation.h"
#include "launcher/command_line/options.h"

namespace hvd::launcher {

int run_agent(const Options& options);                               // --agent --rendezvous
int run_started_agent(const std::optional<Invitation>& invitation);  // by a launcher (ssh.cc)

}  // namespace hvd::launcher
