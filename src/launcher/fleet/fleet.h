// Where the workers of a job run: a crew on this machine, which serves every host name of this machine, and agents on
// other hosts. The hosts of a static job are contacted before the job; in an elastic job an agent is contacted when a
// worker is to be started there, and dismissed when the host is no longer listed. Workers have the same ids on all
// hosts. Thread rule: one thread; an event loop drives it: add_to(), wait, on_reaped(), look(). Events come from those,
// and from start() and stop().
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launcher/agents/remote_host.h"
#include "launcher/command_line/options.h"
#include "launcher/fleet/muster.h"
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
  // With all its workers. Not `is_cause`: it was told to stop, but did not.
  virtual void on_host_lost(const std::string& host, std::string_view reason, bool is_cause) = 0;
  virtual void on_observed(const std::string& host, uint64_t id, std::string_view json) = 0;  // see observe()

 protected:
  ~FleetEvents() = default;
};

class Fleet {
 public:
  // `contacts`: agents that are already connected. Their hosts have as many slots as workers will start there; 0 for a
  // surplus agent, which only leaves with the others. `directory`: where workers on other hosts start. All references
  // outlive the fleet.
  Fleet(FleetEvents& events, const Options& options, const Meeting& meeting, Screen& screen, Muster& muster,
        std::string directory, std::vector<Contact> contacts);
  ~Fleet();

  void start(const Host& host, const Start& start);        // slots: the number of workers that share the host's cores
  void stop(int worker);                                   // also processes left behind by a worker that has ended
  void set_listed(std::set<std::string> hosts);            // other hosts are dismissed when nothing runs there
  std::string last_notice(const std::string& host) const;  // the last message of its agent, for the user

  // The end: everything is stopped, or killed; then the agents are dismissed.
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
  struct Relay;
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
  Muster& muster_;
  std::string directory_;
  std::unique_ptr<Local> local_;
  std::map<std::string, std::unique_ptr<Remote>> remotes_;
  std::vector<std::unique_ptr<Remote>> departing_;  // no longer needed
  std::vector<Host> to_call_;
  struct Call {
    std::unique_ptr<SshContacts> contacts;
    size_t failures = 0;  // failures already reported
  };
  std::vector<Call> calls_;
  std::set<std::string> listed_;
  bool is_ending_ = false, is_leaving_ = false;
};

}  // namespace hvd::launcher
