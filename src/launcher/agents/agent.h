// The agent of a host: runs workers there as its launcher tells it, and ends with everything it started when the
// launcher lets it go, falls silent or is gone. Started by the launcher over ssh, it talks over stdin and stdout, or,
// where there is no stdin, calls the launcher that has invited it; started in any other way, it calls the launcher too
// (--rendezvous). Thread rule: called once, from main, below a guard.
#pragma once

#include <optional>

#include "launcher/agents/invitation.h"
#include "launcher/command_line/options.h"

namespace hvd::launcher {

int run_agent(const Options& options);                               // --agent --rendezvous
int run_started_agent(const std::optional<Invitation>& invitation);  // by a launcher (ssh.cc)

}  // namespace hvd::launcher
