// How a launcher reaches its hosts before it starts anything there: it contacts them over ssh, or waits for agents that
// were started in another way. Used by static jobs, jobs with agents, and the doctor, which handle missing hosts
// differently. Thread rule: one thread; call() and await_agents() block in their own event loop, which signals end.
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

// The seconds in a variable that the user has set for the workers, or else `usual`.
double seconds_for_workers(const Options& options, std::string_view variable, double usual);

class Muster {
 public:
  Muster(const Options& options, Signals& signals, Screen& screen);
  Muster(const Muster&) = delete;
  Muster& operator=(const Muster&) = delete;

  double start_timeout() const { return start_timeout_; }
  TimePoint deadline() const { return after(Clock::now(), seconds(start_timeout_)); }
  int stop_signal() const { return stop_signal_; }  // nonzero: ended early because of this signal
  // Processes of ours that are not workers, including those of contacts while they run.
  std::set<pid_t>& strangers() { return strangers_; }

  struct Reached {
    std::vector<Contact> contacts;
    std::vector<Unreachable> failures;
  };
  Reached call(const std::vector<Host>& hosts);  // those that are not this machine
  // The same for a caller with its own event loop: starts contacting these hosts.
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
