// Where agents that the launcher did not start connect to it (--agents N): each proves that it has the job's key, over
// an encrypted connection, and sends a hello. Other connections are rejected (net/acceptor.h). Thread rule: one thread;
// an event loop drives it: add_to(), wait, look().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/agents/contact.h"
#include "launcher/command_line/options.h"
#include "net/acceptor.h"

namespace hvd::launcher {

class AgentDoor {
 public:
  static Result<std::unique_ptr<AgentDoor>> open(const Options& options, const Key& key, size_t wanted);

  std::string addresses() const;  // for messages
  void add_to(PollSet& set);
  void look();
  void on_reaped(pid_t, int) {}
  bool is_done() const { return contacts_.size() == wanted_; }
  size_t reached() const { return contacts_.size(); }
  std::vector<Contact> take_contacts();  // in the order of their hosts' names

 private:
  AgentDoor(std::unique_ptr<Acceptor> acceptor, size_t wanted) : acceptor_(std::move(acceptor)), wanted_(wanted) {}
  void listen_to_comers();

  std::unique_ptr<Acceptor> acceptor_;
  size_t wanted_;
  std::vector<std::unique_ptr<AgentLink>> comers_;  // accepted, but without a hello so far
  std::vector<Contact> contacts_;
};

}  // namespace hvd::launcher
