// Starts an agent on every host over ssh, many at a time, and waits for their hellos. OpenSSH forwards our stdin; other
// programs may not, so their agents are invited too (invitation.h) and report which way works. Thread rule: one thread;
// an event loop drives it: add_to(), wait, look(), on_reaped().
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/agents/contact.h"
#include "launcher/agents/invited_door.h"
#include "launcher/ssh/ssh.h"

namespace hvd::launcher {

class SshContacts {
 public:
  static constexpr size_t kAtOnce = 32;  // contacts in progress; each is a process here and a login there

  // `path`: horovodrun on the hosts; invited agents connect to us at `interfaces` (empty: all); `strangers` gets the
  // pids of the processes that are started.
  SshContacts(Ssh ssh, const std::vector<Host>& hosts, std::string path, std::vector<std::string> interfaces,
              TimePoint deadline, std::set<pid_t>& strangers);

  void add_to(PollSet& set);
  void look();  // after every wait
  void on_reaped(pid_t pid, int status);
  bool is_done() const;  // nothing is in progress; some may have failed
  size_t reached() const { return contacts_.size(); }
  std::vector<Contact> take_contacts() { return std::move(contacts_); }  // in the order in which they answered
  const std::vector<Unreachable>& failures() const { return failures_; }

 private:
  enum class Step { waiting, asking, calling, over };
  struct Call {
    Host host;
    Step step = Step::waiting;
    std::unique_ptr<PipedProcess> process;
    std::unique_ptr<InvitedDoor> door;  // where the agent connects if it has no stdin
    std::unique_ptr<AgentLink> link;    // set when the agent has answered
    std::string printed;                // other output instead, or before
    TimePoint answer_by = kNever;       // of a query
  };

  void ask(Call& call);
  void call_host(Call& call, HostKeys keys);
  void look_at(Call& call);
  void take_answer(Call& call);
  void look_for_agent(Call& call);
  std::optional<std::string> read_opening(Call& call);
  std::string why_silent(const Call& call) const;
  void listen(Call& call);
  void end(Call& call, std::string reason);

  Ssh ssh_;
  std::string path_;
  std::vector<std::string> interfaces_;
  TimePoint began_, deadline_;
  std::set<pid_t>& strangers_;
  std::deque<Call> calls_;
  std::vector<std::unique_ptr<PipedProcess>> killed_;  // queries that took too long
  std::vector<Contact> contacts_;
  std::vector<Unreachable> failures_;
};

}  // namespace hvd::launcher
