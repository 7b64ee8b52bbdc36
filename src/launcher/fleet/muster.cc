#include "launcher/fleet/muster.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/number.h"
#include "launcher/agents/agent_door.h"
#include "launcher/ssh/ssh.h"
#include "launcher/workers/environment.h"
#include "model/config.h"

namespace hvd::launcher {

double seconds_for_workers(const Options& options, std::string_view variable, double usual) {
  const char* inherited = find_variable(environ, variable);
  std::string_view text = inherited ? inherited : "";
  for (const auto& [name, value] : options.variables)
    if (name == variable) text = value;
  auto value = read_number<double>(text);
  return value && *value > 0 ? *value : usual;
}

Muster::Muster(const Options& options, Signals& signals, Screen& screen)
    : options_(options),
      signals_(signals),
      screen_(screen),
      start_timeout_(options.start_timeout
                         ? *options.start_timeout
                         : seconds_for_workers(options, "HOROVOD_START_TIMEOUT", Config().start_timeout)) {}

// One iteration of the event loop; false: a signal requested a stop.
template <class Contacts>
bool Muster::wait_for(Contacts& contacts) {
  contacts.add_to(set_);
  screen_.add_to(set_);
  signals_.add_to(set_);
  set_.wait();
  signals_.reap([&](pid_t pid, int status) { contacts.on_reaped(pid, status); });
  contacts.look();
  auto stops = signals_.take_stop_signals();
  if (!stops.empty()) stop_signal_ = stops[0];
  return stops.empty();
}

Muster::Reached Muster::call(const std::vector<Host>& hosts) {
  std::vector<Host> remote;
  for (const Host& host : hosts)
    if (!is_local(host)) remote.push_back(host);
  if (remote.empty()) return {};
  auto contacts = begin_call(remote);
  while (!contacts->is_done()) {
    screen_.set_status(
        fmt::format("horovodrun: contacting hosts: {} of {} answer", contacts->reached(), remote.size()));
    if (!wait_for(*contacts)) return {};
  }
  return {contacts->take_contacts(), contacts->failures()};
}

std::unique_ptr<SshContacts> Muster::begin_call(const std::vector<Host>& remote) {
  std::error_code error;
  std::string path = std::filesystem::read_symlink("/proc/self/exe", error);
  Ssh ssh = ssh_of(options_, environ, static_cast<int>(start_timeout_));
  return std::make_unique<SshContacts>(ssh, remote, path, options_.network_interfaces, deadline(), strangers_);
}

Result<std::vector<Contact>> Muster::await_agents(const Key& key, TimePoint until) {
  size_t wanted = static_cast<size_t>(*options_.agents);
  auto door = AgentDoor::open(options_, key, wanted);
  if (!door.ok()) return door.status();
  screen_.say(fmt::format("waiting for {} agent{} at {}", wanted, wanted == 1 ? "" : "s", (*door)->addresses()));
  while (!(*door)->is_done() && Clock::now() < until) {
    screen_.set_status(fmt::format("horovodrun: waiting for agents: {} of {} connected", (*door)->reached(), wanted));
    set_.wake_at(until);
    if (!wait_for(**door)) break;
  }
  return (*door)->take_contacts();
}

}  // namespace hvd::launcher
