// Where the workers of an elastic job run: a crew on this machine, which serves every host that is this machine, and
// agents on others, which are called when a worker is to be started there and let go when the host is not listed any
// more. Workers are known by their numbers, wherever they are. Thread rule: one thread; an event loop drives it:
// add_to(), wait, on_reaped(), look(). Events come from those, and from start().
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launcher/agents/remote_host.h"
#include "launcher/command_line/options.h"
#include "launcher/fleet/ssh_contacts.h"
#include "launcher/output/screen.h"
#include "launcher/workers/crew.h"
#include "launcher/workers/meeting.h"

namespace hvd::launcher {

class FleetEvents {
 public:
  virtual void on_started(int worker, pid_t pid) = 0;
  virtual void on_not_started(int worker, std::string_view reason) = 0;
  virtual void on_output(int worker, WorkerStream stream, std::string_view bytes) = 0;
  virtual void on_output_end(int worker, WorkerStream stream) = 0;
  virtual void on_report(int worker, const EndReport& report) = 0;
  virtual void on_ended(int worker, const Ended& ended) = 0;
  virtual void on_observed(const std::string& host, uint64_t id, std::string_view json) = 0;  // see observe()
  virtual void on_host_lost(const std::string& host, std::string_view reason) = 0;  // and all that ran there

 protected:
  ~FleetEvents() = default;
};

class Fleet {
 public:
  // `contacts` are agents that came by themselves. All references outlive it.
  Fleet(FleetEvents& events, const Options& options, const Meeting& meeting, Screen& screen, double start_timeout,
        std::vector<Contact> contacts);
  ~Fleet();

  // `slots` is how many workers the host may have.
  void start(const Host& host, int slots, const Start& start);
  void stop(int worker);                         // also what one that has ended left behind
  void set_listed(std::set<std::string> hosts);  // the others are let go when nothing runs there

  // The end: everything is stopped, or killed; then the agents are let go.
  void stop_all();
  void kill_all();
  bool is_empty() const;
  void leave();
  bool has_left() const;

  // Asks all hosts on which workers run; returns their names. Each answers once, unless it is lost.
  std::vector<std::string> observe(const ObserveRequest& request);

  void hold_output(WorkerStream stream, bool hold);
  void add_to(PollSet& set);
  void on_reaped(pid_t pid, int status);
  void look();

 private:
  struct Local;
  struct Remote;

  Remote& remote_of(const Host& host);
  void call_hosts();
  void take_answers(SshContacts& call, size_t& known_failures);
  void take_contact(Contact contact);
  void let_go_of_unlisted();

  FleetEvents& events_;
  const Options& options_;
  const Meeting& meeting_;
  Screen& screen_;
  double start_timeout_;
  std::string directory_;      // where the user is
  std::set<pid_t> strangers_;  // processes of ours that are no workers: ssh
  std::unique_ptr<Local> local_;
  std::map<std::string, std::unique_ptr<Remote>> remotes_;
  std::vector<std::unique_ptr<Remote>> departing_;  // not needed any more
  std::vector<Host> to_call_;
  struct Call {
    std::unique_ptr<SshContacts> contacts;
    size_t failures = 0;  // those that were told
  };
  std::vector<Call> calls_;
  std::set<std::string> listed_;
  bool is_ending_ = false, is_leaving_ = false;
};

}  // namespace hvd::launcher
