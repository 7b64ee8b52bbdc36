#include "launcher/agents/agent_door.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/joined.h"
#include "base/log.h"
#include "launcher/agents/agent_call.h"

namespace hvd::launcher {

Result<std::unique_ptr<AgentDoor>> AgentDoor::open(const Options& options, const Key& key, size_t wanted) {
  auto credentials = encrypted_credentials(key);
  if (!credentials.ok()) return credentials.status();
  PortRange ports;
  std::vector<IpAddress> addresses;
  if (!options.rendezvous.empty()) {
    auto given = parse_rendezvous(options.rendezvous);
    if (!given.ok()) return given.status();
    ports = {given->port, given->port};
    if (!given->host.empty()) {
      auto endpoints = resolve(given->host, given->port);
      if (!endpoints.ok()) return endpoints.status();
      for (const Endpoint& endpoint : *endpoints) addresses.push_back(endpoint.address.ip);
    }
  }
  auto listener = addresses.empty() ? listen_on(options.network_interfaces, ports) : listen_on(addresses, ports);
  if (!listener.ok()) return listener.status();
  auto acceptor = Acceptor::create(std::move(*listener), *credentials, {.purposes = {Purpose::agent}});
  if (!acceptor.ok()) return acceptor.status();
  return std::unique_ptr<AgentDoor>(new AgentDoor(std::move(*acceptor), wanted));
}

std::string AgentDoor::addresses() const {
  std::vector<std::string> all;
  for (const Endpoint& endpoint : acceptor_->endpoints()) all.push_back(to_text(endpoint.address));
  return joined(all, ", ");
}

void AgentDoor::add_to(PollSet& set) {
  set.add(acceptor_->descriptor(), POLLIN, [] {});
  for (auto& comer : comers_) comer->add_to(set);
  for (Contact& contact : contacts_) contact.link->add_to(set);
}

void AgentDoor::look() {
  std::vector<Accepted> accepted;
  acceptor_->poll(Clock::now(), accepted);
  for (Accepted& each : accepted) comers_.push_back(std::make_unique<AgentLink>(std::move(each.stream)));
  // An agent that has disconnected makes room for another.
  std::erase_if(contacts_, [](Contact& contact) {
    for (auto message = contact.link->receive(); message.ok(); message = contact.link->receive())
      if (!*message) return false;
    return true;
  });
  listen_to_comers();
}

void AgentDoor::listen_to_comers() {
  for (auto& comer : comers_) {
    auto message = comer->receive();
    if (message.ok() && !*message) continue;
    const AgentHello* hello = message.ok() ? std::get_if<AgentHello>(&**message) : nullptr;
    if (hello == nullptr) {
      comer.reset();
      continue;
    }
    if (Status status = check_hello(*hello); !status.ok() || is_done()) {
      log_warning("not using the agent on {}: {}", hello->host, is_done() ? "there are enough" : status.message());
      comer.reset();
      continue;
    }
    contacts_.push_back({Host{.name = hello->host}, *hello, std::move(comer), nullptr});
  }
  std::erase(comers_, nullptr);
}

// Two agents may report the same machine name, as containers do; they still count as two hosts.
std::vector<Contact> AgentDoor::take_contacts() {
  std::stable_sort(contacts_.begin(), contacts_.end(),
                   [](const Contact& one, const Contact& other) { return one.host.name < other.host.name; });
  std::map<std::string, int> seen;
  for (Contact& contact : contacts_)
    if (int count = ++seen[contact.host.name]; count > 1) contact.host.name += fmt::format("-{}", count);
  return std::move(contacts_);
}

}  // namespace hvd::launcher
