// Contacting the hosts of a job before anything is started there: each host has an agent that sent a hello, or there is
// a reason why not. With ssh the launcher starts the agents (ssh_contacts.h), otherwise they connect on their own
// (agent_door.h). Thread rule: plain values.
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
  std::unique_ptr<PipedProcess> ssh;  // none: the launcher did not start the agent
};

struct Unreachable {
  std::string host, reason;
  std::string command;  // to try by hand; may be empty
};

// A table for the user. `hosts` is the total number.
std::string describe(const std::vector<Unreachable>& failures, size_t hosts);

// Ok, or why this launcher cannot use the agent.
Status check_hello(const AgentHello& hello);

}  // namespace hvd::launcher
