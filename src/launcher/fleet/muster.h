// How a launcher reaches its hosts before it starts anything there: it contacts them over ssh, or waits for agents that
// were started in another way. Static jobs, those with agents, and the doctor begin with it, and treat missing hosts
// differently.
// Thread rule: one thread; call() and await_agents() block in an event loop of their own, which signals end.
#pragma once

#include <sys/types.h>

#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "launcher/agents/contact.h"
#include "launcher/command_line/options.h"
#include "launcher/fleet/ssh_contacts.h"
#include "launcher/output/screen.h"
#include "launcher/processes/poll_set.h"
#include "launcher/processes/signals.h"
#include "net/key.h"

namespace hvd::launcher {

// A number of seconds that the user has given to the workers too, or else `usual`.
double seconds_for_workers(const Options& options, std::string_view variable, double usual);

class Muster {
 public:
  Muster(const Options& options, Signals& signals, Screen& screen);
  Muster(const Muster&) = delete;
  Muster& operator=(const Muster&) = delete;

  double start_timeout() const { return start_timeout_; }
  TimePoint deadline() const { return after(Clock::now(), seconds(start_timeout_)); }
  int stop_signal() const { return stop_signal_; }  // not 0: it ended early because of this one
  // Processes of ours that are no workers; those of contacts are among them for as long as they live.
  std::set<pid_t>& strangers() { return strangers_; }

  struct Reached {
    std::vector<Contact> contacts;
    std::vector<Unreachable> failures;
  };
  Reached call(const std::vector<Host>& hosts);  // those of them that are not this machine
  // The same for a caller with an event loop: the call to these hosts.
  std::unique_ptr<SshContacts> begin_call(const std::vector<Host>& remote);
  // Returns when all agents have connected, or at `until` with those that have.
  Result<std::vector<Contact>> await_agents(const Key& key, TimePoint until);

 private:
  template <class Contacts>
  bool wait_for(Contacts& contacts);

  const Options& options_;
  Signals& signals_;
  Screen& screen_;
  PollSet set_;
  std::set<pid_t> strangers_;
  double start_timeout_;
  int stop_signal_ = 0;
};

}  // namespace hvd::launcher
