// A host whose workers are run by an agent there. It is lost when the agent is silent, the connection ends, or the
// agent does not stop when told to; the agent then ends everything on its side. Thread rule: as HostRunner.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "launcher/agents/contact.h"
#include "launcher/workers/host_runner.h"

namespace hvd::launcher {

class RemoteHost : public HostRunner {
 public:
  // `silence` is how long the agent may be silent. The agent's own limit is longer: a launcher may be delayed by a slow
  // file system, and if it has died, its connections usually close.
  RemoteHost(HostEvents& events, Contact contact, Duration silence);

  void set_work(const Work& work) override;
  void start(const Start& start) override;
  void stop(int worker) override;
  void stop() override;
  void kill() override;
  void leave() override;
  bool has_left() const override { return is_gone_; }
  void hold_output(WorkerStream stream, bool hold) override;
  void observe(const ObserveRequest& request) override { contact_.link->send(AgentObserve{request}); }
  void add_to(PollSet& set) override;
  void on_reaped(pid_t pid, int status) override;
  void look() override;

 private:
  bool receive();  // false: there is nothing to read at the moment
  void take(const AgentMessage& message);
  void take_observed(const AgentObserved& part);
  void lose(std::string_view reason, bool is_cause = true);
  void grant();
  void listen_for(Duration silence);

  HostEvents& events_;
  Contact contact_;
  Duration silence_;
  std::map<uint64_t, std::string> observed_;  // answers that are not complete
  bool held_[2] = {false, false};
  uint64_t owed_[2] = {0, 0};  // consumed output whose credit has not been returned to the agent
  int starting_ = 0;           // workers that the agent was told to start and has not reported
  bool has_more_ = false;
  TimePoint give_up_ = kNever;
  std::string broken_;  // why the link ended; ssh may have more information
  bool has_left_ = false, is_gone_ = false;
};

}  // namespace hvd::launcher
