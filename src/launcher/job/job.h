// The life of one job, static or elastic. The driver (elastic/driver.h) decides which workers start where, when the job
// ends, and how; this class passes events to it and carries out its actions. The job is over when the driver says so;
// nothing is running then. In a static job the ranks are known from the start; in an elastic one hosts and workers come
// and go, and workers have lines to this launcher. Thread rule: single-threaded; run() is one event loop over workers,
// their lines, the discovery script, screen and signals. Events are queued and handled after every round, so that no
// callback changes a container that is being iterated.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/driver.h"
#include "launcher/command_line/options.h"
#include "launcher/fleet/fleet.h"
#include "launcher/job/discovery_script.h"
#include "launcher/job/summary.h"
#include "launcher/job/worker_lines.h"
#include "launcher/observatory/observatory.h"
#include "launcher/output/rank_output.h"
#include "launcher/output/screen.h"
#include "launcher/processes/signals.h"

namespace hvd::launcher {

class Job : FleetEvents, LineEvents {
 public:
  struct Parts {
    const Options& options;
    const Meeting& meeting;
    WorkerLines& lines;  // unused in a static job
    Muster& muster;
    Screen& screen;
    Signals& signals;
    elastic::Settings settings;
    std::string directory;  // the user's current directory
  };
  // `hosts` of a static job have as many slots as ranks. Those of an elastic one are constant, unless the options name
  // a discovery script. `contacts` are the agents that are already connected.
  Job(const Parts& parts, std::vector<Host> hosts, std::vector<Contact> contacts);

  // The exit code: 0 after success; 1 when the job failed; 128+n after signal n to the launcher.
  int run();

 private:
  struct WorkerRecord {
    int id = 0;
    std::string host;
    std::vector<RankOutput> streams = {};  // by WorkerStream
    pid_t pid = -1;
    int rank = -1;            // its last rank
    Generation member_of{0};  // 0: it waits for a rank, or has none
    bool is_over = false;     // ended, not started, or lost
    std::optional<EndReport> report = {};
    std::optional<Ending> ending = {};
    TimePoint stop_at = kNever;  // its line is gone, and its process should end by then
  };

  // Events of workers and hosts, and messages from workers.
  void on_started(int worker, pid_t pid) override;
  void on_not_started(int worker, std::string_view reason) override;
  void on_output(int worker, WorkerStream stream, std::string_view bytes) override;
  void on_output_end(int worker, WorkerStream stream) override;
  void on_report(int worker, const EndReport& report) override;
  void on_ended(int worker, const Ended& ended) override;
  void on_observed(const std::string& host, uint64_t id, std::string_view json) override;
  void on_host_lost(const std::string& host, std::string_view reason, bool is_cause) override;
  void on_ready(int worker, const WorkerReady& ready) override;
  void on_leaving(int worker, const WorkerLeaves& leaves) override;
  void on_line_lost(int worker, std::string_view reason) override;

  // Actions of the driver (actions.cc).
  void act(const elastic::StartWorker& action);
  void act(const elastic::StopWorker& action);
  void act(const elastic::StopAll& action);
  void act(const elastic::NotifyWorkers& action);
  void act(const elastic::AssignGeneration& action);
  void act(const elastic::LeaveWorker& action);
  void act(const elastic::Say& action);
  void act(const elastic::Fail& action);
  void act(const elastic::Finish& action);

  Status add_static_workers();
  Status add_worker(WorkerRecord worker, std::string_view label, const std::string& folder);
  Host host_named(const std::string& name) const;
  Slot slot_on(const std::string& host, int number) const;
  Start start_of(const elastic::StartWorker& action, const Host& host) const;

  void start_observing();
  void step();
  void decide();  // until there are no more events
  void show_progress();
  void on_stop_signal(int signal);
  void look_at_discovery();
  void hear_of(std::vector<Host> hosts);
  void stop_lost();
  void leave_world(WorkerRecord& worker, const std::string& reason);
  WorkerRecord* find(int id);
  static std::string name_of(const WorkerRecord& worker);
  void end_outputs(WorkerRecord& worker);
  size_t count_running() const;

  // The end of the job.
  void gather();  // what is known of the ranks, before anything is stopped
  bool is_gathering() const;
  void stop_all();  // once that is done
  void stop_now();
  void note(Failure failure);
  void forget_ended();
  bool has_failed() const;
  const WorkerRecord* find_failed(const Failure& failure) const;
  FailedJob explain() const;
  int exit_code() const;

  const Options& options_;
  const bool is_elastic_;
  WorkerLines& lines_;
  Screen& screen_;
  Signals& signals_;
  TimePoint began_;
  PollSet set_;
  Fleet fleet_;
  std::optional<Observatory> observatory_;
  elastic::Driver driver_;
  std::optional<DiscoveryScript> discovery_;
  std::vector<Host> hosts_;  // as last listed
  std::vector<Slot> slots_;  // of the hosts, if all were used
  std::map<int, WorkerRecord> workers_;
  size_t started_ = 0;  // so far
  std::deque<elastic::Event> happened_;
  Generation generation_{0};
  bool is_void_ = false;           // it can no longer form, and its members know
  std::vector<Failure> failures_;  // since the current generation began
  std::string failure_;            // of the job
  bool has_gathered_ = false;
  bool is_to_stop_ = false;   // once everything is gathered
  bool is_stopping_ = false;  // all hosts were told to stop
  size_t stopped_ = 0;        // workers that were running then
  int exit_code_ = 0;
  int stop_signal_ = 0;  // the signal that ended the job, if any
};

}  // namespace hvd::launcher
