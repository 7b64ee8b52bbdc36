// Reaching the hosts of a job before anything is started there: an agent on each has said hello, or the reason why not
// is known. With ssh the launcher starts the agents (ssh_contacts.h), otherwise they come by themselves (agent_door.h).
// Thread rule: plain values.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agents/agent_link.h"
#include "launcher/hosts/hosts.h"
#include "launcher/processes/piped_process.h"

namespace hvd::launcher {

// A host that is ready for work.
struct Contact {
  Host host;
  AgentHello hello;
  std::unique_ptr<AgentLink> link;
  std::unique_ptr<PipedProcess> ssh;  // none: the agent came by itself
};

struct Unreachable {
  std::string host, reason;
  std::string command;  // to try by hand; may be empty
};

// A table for people. `hosts` is the number of all.
std::string describe(const std::vector<Unreachable>& failures, size_t hosts);

// Ok, or why this agent is of no use to this launcher.
Status check_hello(const AgentHello& hello);

}  // namespace hvd::launcher
