// How ssh is called, and what its failures mean. Thread rule: plain values and pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launcher/command_line/options.h"
#include "launcher/hosts/hosts.h"
#include "launcher/processes/process.h"

namespace hvd::launcher {

// How this job reaches other hosts.
struct Ssh {
  std::vector<std::string> command = {"ssh"};  // HOROVOD_SSH_COMMAND or kubexec instead
  bool takes_options = true;                   // kubexec takes a host and a command, nothing else
  // OpenSSH's own: passes stdin on, and `ssh -G HOST` tells what the user has configured.
  bool is_openssh = true;
  std::optional<int> port;
  std::string identity_file;
  bool strict = false;
  int connect_timeout = 10;  // seconds
};
Ssh ssh_of(const Options& options, char* const* environment, int start_timeout);

// Whether a new host's key is taken: only where the user has left ssh to ask, which it cannot do here.
enum class HostKeys { as_configured, accept_new };

std::vector<std::string> query_command(const Ssh& ssh, const Host& host);  // prints the configuration for this host
HostKeys host_keys_of(std::string_view configuration);                     // what query_command() printed

// Runs `horovodrun --agent` on the host: the one at `path`, or else the first in its PATH. `invitation` is for an agent
// that finds no stdin; empty: there will be one. Nothing secret is in it.
std::vector<std::string> agent_command(const Ssh& ssh, const Host& host, HostKeys keys, const std::string& path,
                                       const std::string& invitation = {});

// For people to try.
std::string trial_command(const Ssh& ssh, const Host& host);

// Why an ssh that should have run an agent ended instead: from how it ended, its stderr, and what came on stdout.
std::string explain_failure(const Ssh& ssh, const Host& host, Ending ending, std::string_view said,
                            std::string_view printed);

}  // namespace hvd::launcher
