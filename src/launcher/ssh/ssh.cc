#include "launcher/ssh/ssh.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/joined.h"
#include "launcher/processes/shell_words.h"
#include "launcher/workers/environment.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view kKubexec = "kubexec.sh";
constexpr int kSshFailed = 255, kNotFound = 127;
constexpr size_t kLongestQuote = 300;

// Works in any login shell: one kind of quotes, and nothing that csh or fish parses differently. $0 is the path, the
// rest are the agent's arguments.
constexpr const char* kFindAgent =
    "if [ -x \"$0\" ]; then exec \"$0\" --agent - \"$@\"; fi; "
    "if command -v horovodrun >/dev/null 2>&1; then exec horovodrun --agent - \"$@\"; fi; "
    "echo \"horovodrun was not found (tried $0 and PATH)\" >&2; exit 127";

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (true) {
    size_t begin = text.find_first_not_of(" \t");
    if (begin == std::string_view::npos) return words;
    text.remove_prefix(begin);
    words.emplace_back(text.substr(0, text.find_first_of(" \t")));
    text.remove_prefix(words.back().size());
  }
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }  // npos + 1 is 0

void add_destination(std::vector<std::string>& command, const Ssh& ssh, const Host& host) {
  if (ssh.takes_options) {
    if (ssh.port) command.insert(command.end(), {"-p", std::to_string(*ssh.port)});
    if (!ssh.identity_file.empty()) command.insert(command.end(), {"-i", ssh.identity_file});
  }
  command.push_back(host.user.empty() ? host.name : host.user + "@" + host.name);
}

// The last line that is not empty.
std::string_view last_line(std::string_view text) {
  size_t end = text.find_last_not_of(" \t\r\n") + 1;
  text = text.substr(0, end);
  text = text.substr(text.find_last_of("\r\n") + 1);
  return text.substr(0, kLongestQuote);
}

std::string_view line_with(std::string_view text, std::string_view words) {
  size_t at = text.find(words);
  if (at == std::string_view::npos) return {};
  size_t begin = text.substr(0, at).find_last_of("\r\n") + 1;
  return text.substr(begin, std::min(text.find_first_of("\r\n", at), text.size()) - begin).substr(0, kLongestQuote);
}

}  // namespace

Ssh ssh_of(const Options& options, char* const* environment, int start_timeout) {
  Ssh ssh{.port = options.ssh_port,
          .identity_file = options.ssh_identity_file,
          .strict = options.ssh_strict,
          .connect_timeout = std::max(1, std::min(10, start_timeout))};
  const char* own = find_variable(environment, "HOROVOD_SSH_COMMAND");
  const char* mpi = find_variable(environment, "OMPI_MCA_plm_rsh_agent");
  if (own != nullptr && !words_of(own).empty()) {
    ssh.command = words_of(own);
    ssh.is_openssh = base_name(ssh.command[0]) == "ssh";
  } else if (mpi != nullptr && base_name(mpi) == kKubexec) {
    ssh.command = {mpi};
    ssh.takes_options = ssh.is_openssh = false;
  }
  return ssh;
}

std::vector<std::string> query_command(const Ssh& ssh, const Host& host) {
  std::vector<std::string> command = ssh.command;
  command.emplace_back("-G");
  add_destination(command, ssh, host);
  return command;
}

HostKeys host_keys_of(std::string_view configuration) {
  return line_with(configuration, "stricthostkeychecking ") == "stricthostkeychecking ask" ? HostKeys::accept_new
                                                                                           : HostKeys::as_configured;
}

std::vector<std::string> agent_command(const Ssh& ssh, const Host& host, HostKeys keys, const std::string& path,
                                       const std::string& invitation) {
  std::vector<std::string> command = ssh.command;
  if (ssh.takes_options) {
    // No terminal, no prompts, no multiplexing master left behind; a silent host is detected.
    command.insert(command.end(), {"-T", "-o", "BatchMode=yes", "-o", "ControlMaster=no", "-o",
                                   fmt::format("ConnectTimeout={}", ssh.connect_timeout), "-o", "ServerAliveInterval=5",
                                   "-o", "ServerAliveCountMax=3"});
    if (ssh.strict) {
      command.insert(command.end(), {"-o", "StrictHostKeyChecking=yes"});
    } else if (keys == HostKeys::accept_new) {
      command.insert(command.end(), {"-o", "StrictHostKeyChecking=accept-new"});
    }
  }
  add_destination(command, ssh, host);
  command.push_back(fmt::format("exec sh -c {} {}{}{}", shell_quoted(kFindAgent), shell_quoted(path),
                                invitation.empty() ? "" : " ", invitation));
  return command;
}

std::string trial_command(const Ssh& ssh, const Host& host) {
  std::vector<std::string> command = ssh.command;
  if (ssh.strict && ssh.takes_options) command.insert(command.end(), {"-o", "StrictHostKeyChecking=yes"});
  add_destination(command, ssh, host);
  command.emplace_back("true");
  return joined(command, " ");
}

std::string explain_failure(const Ssh& ssh, const Host& host, Ending ending, std::string_view said,
                            std::string_view printed) {
  const std::string& program = ssh.command[0];
  if (auto line = line_with(said, "horovodrun was not found"); !line.empty())
    return fmt::format("{}; install horovod there, or at the same path as here", line);
  if (said.find("REMOTE HOST IDENTIFICATION HAS CHANGED") != std::string_view::npos)
    return fmt::format(
        "its host key has changed: another machine may be answering. If the change is expected, remove the "
        "old key with: ssh-keygen -R {}",
        host.name);
  if (said.find("Host key verification failed") != std::string_view::npos)
    return fmt::format("its host key is not known{}; log in once by hand, or add it to known_hosts",
                       ssh.strict ? ", and --ssh-strict requires a known one" : "");
  if (auto line = line_with(said, "Permission denied"); !line.empty())
    return fmt::format("ssh requires an interactive login ({}); use a key without passphrase (-i FILE) or an ssh agent",
                       line);
  std::string_view line = last_line(said);
  if (line.starts_with("ssh: ")) line.remove_prefix(5);
  if (!line.empty() && (ending.code() == kSshFailed || ending.code() == kNotFound || printed.empty()))
    return std::string(line);
  std::string text = fmt::format("{} ended ({}) before the agent answered", program, describe(ending));
  if (!line.empty()) text += fmt::format("; it said: {}", line);
  if (auto shown = last_line(printed); !shown.empty()) text += fmt::format("; the login shell printed: {}", shown);
  return text;
}

}  // namespace hvd::launcher
