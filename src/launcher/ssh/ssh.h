// The ssh command line, and explanations of its failures. Thread rule: plain values and pure functions.
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
  bool takes_options = true;                   // kubexec takes only a host and a command
  // OpenSSH's own ssh: forwards stdin, and `ssh -G HOST` prints the user's configuration.
  bool is_openssh = true;
  std::optional<int> port;
  std::string identity_file;
  bool strict = false;
  int connect_timeout = 10;  // seconds
};
Ssh ssh_of(const Options& options, char* const* environment, int start_timeout);

// Whether to accept a new host's key: only if the user's configuration would prompt, which is impossible here.
enum class HostKeys { as_configured, accept_new };

std::vector<std::string> query_command(const Ssh& ssh, const Host& host);  // prints the configuration for this host
HostKeys host_keys_of(std::string_view configuration);                     // what query_command() printed

// Runs `horovodrun --agent` on the host: the one at `path`, or else the first in its PATH. `invitation` is for an agent
// without stdin; empty: it has one. It contains no secret.
std::vector<std::string> agent_command(const Ssh& ssh, const Host& host, HostKeys keys, const std::string& path,
                                       const std::string& invitation = {});

// For the user to try.
std::string trial_command(const Ssh& ssh, const Host& host);

// Why an ssh that should have run an agent ended: from its exit status, its stderr, and its output on stdout.
std::string explain_failure(const Ssh& ssh, const Host& host, Ending ending, std::string_view said,
                            std::string_view printed);

}  // namespace hvd::launcher
