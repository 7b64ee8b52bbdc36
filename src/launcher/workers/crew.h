// The workers on this machine. Driven by the launcher for its own host, and by an agent for its launcher. A crew moves
// forward only: running -> stopping (all were sent SIGTERM) -> killing (SIGKILL to everything). It treats every process
// below this one as its own, except those it is told to ignore (ssh). Thread rule: one thread; the code that reaps the
// children of this process calls on_reaped().
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>

#include "launcher/observe/http_server.h"
#include "launcher/observe/worker_view.h"
#include "launcher/workers/binding.h"
#include "launcher/workers/host_runner.h"

namespace hvd::launcher {

// Counts the processes of this cgroup that the kernel has killed because memory ran out.
class MemoryEvents {
 public:
  MemoryEvents();
  bool has_killed();  // since the last call, or the construction

 private:
  int64_t kills_;  // so far; -1: the kernel does not report it
};

class Crew : public HostRunner {
 public:
  // `strangers`: children of this process that do not belong to the crew.
  Crew(HostEvents& events, const std::set<pid_t>& strangers) : events_(events), strangers_(strangers) {}

  void set_work(const Work& work) override;
  void start(const Start& start) override;
  void stop(int id) override;
  void stop() override;
  void kill() override;
  void leave() override {}
  bool has_left() const override { return is_empty_; }
  void hold_output(WorkerStream stream, bool hold) override { held_[static_cast<size_t>(stream)] = hold; }
  void add_to(PollSet& set) override;
  void observe(const ObserveRequest& request) override;
  void on_reaped(pid_t pid, int status) override;
  void look() override;

 private:
  enum class Phase { running, stopping, killing };
  struct Member {
    int id = 0;  // Start::worker
    pid_t pid = -1;
    UniqueFd streams[2];  // by WorkerStream; closed at their end
    UniqueFd report;      // for its end report
    std::optional<WorkerView> view;
    std::string reported;
    bool has_ended = false;
    bool is_forgotten = false;   // it was stopped after its end; its record is no longer needed
    int sent = 0;                // the last signal it got from us
    std::set<pid_t> doomed;      // processes of a worker that is being stopped alone
    TimePoint kill_at = kNever;  // time to kill those
  };

  // Answers that wait for stacks.
  struct Looking {
    ObserveRequest request;
    std::set<int> waiting;  // workers whose stacks are being written
  };

  void serve_metrics();
  HttpReply on_request(const HttpRequest& request) const;
  nlohmann::json document(const Member& worker, const ObserveRequest& request) const;
  void answer_observers();
  void signal_all(int signal);
  void kill_leftovers_of(const Member& worker) const;
  void look_for_leftovers();
  void read(Member& worker, WorkerStream stream);
  void read_report(Member& worker);
  void kill_due();
  TimePoint next_kill() const;

  HostEvents& events_;
  const std::set<pid_t>& strangers_;
  Work work_;
  Binding binding_;
  MemoryEvents memory_;
  std::deque<Member> workers_;  // addresses are stable, except in look()
  Phase phase_ = Phase::running;
  TimePoint kill_at_ = kNever;
  std::optional<HttpServer> metrics_;
  std::string metrics_token_;
  std::vector<Looking> looking_;
  bool held_[2] = {false, false};
  bool is_empty_ = false;
  bool look_again_ = false;  // for leftovers: a process has ended, or there may be none
};

}  // namespace hvd::launcher
