// The life of one elastic job: hosts come and go, workers are started and stopped one by one, and the driver
// (elastic/driver.h) decides. This carries out what it says and tells it what happens. It is over when the driver says
// so, and nothing is left then.
// Thread rule: single-threaded; run() is one event loop over workers, their lines, the discovery script, screen and
// signals. What happens is put into a queue and judged after every round, so that no callback changes what is looped
// over.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/driver.h"
#include "launcher/command_line/options.h"
#include "launcher/fleet/fleet.h"
#include "launcher/observatory/observatory.h"
#include "launcher/job/discovery_script.h"
#include "launcher/job/worker_lines.h"
#include "launcher/output/rank_output.h"
#include "launcher/output/screen.h"
#include "launcher/processes/signals.h"
#include "launcher/workers/failure.h"

namespace hvd::launcher {

class ElasticJob : FleetEvents, LineEvents {
 public:
  struct Parts {
    const Options& options;
    const Meeting& meeting;
    WorkerLines& lines;
    Screen& screen;
    Signals& signals;
    double start_timeout;
    elastic::Settings settings;
  };
  // `hosts` are fixed, unless the options name a discovery script; some may have come by themselves.
  ElasticJob(const Parts& parts, std::vector<Host> hosts, std::vector<Contact> contacts);

  // The exit code: 0 after success; 1 when the job failed; 128+n after signal n to the launcher.
  int run();

 private:
  struct WorkerRecord {
    int id = 0;
    std::string host;
    RankOutput streams[2];  // by WorkerStream
    pid_t pid = -1;
    int rank = -1;            // its last one
    Generation member_of{0};  // 0: it waits for a rank, or has none
    bool is_over = false;     // ended, not started, or lost
    std::optional<EndReport> report = {};
    TimePoint stop_at = kNever;  // its line is gone, and its process should be
  };

  void on_started(int worker, pid_t pid) override;
  void on_not_started(int worker, std::string_view reason) override;
  void on_output(int worker, WorkerStream stream, std::string_view bytes) override;
  void on_output_end(int worker, WorkerStream stream) override;
  void on_report(int worker, const EndReport& report) override;
  void on_ended(int worker, const Ended& ended) override;
  void on_observed(const std::string& host, uint64_t id, std::string_view json) override {
    if (observatory_) observatory_->on_observed(host, id, json);
  }
  void on_host_lost(const std::string& host, std::string_view reason) override;
  void on_ready(int worker, const WorkerReady& ready) override;
  void on_leaving(int worker, const WorkerLeaves& leaves) override;
  void on_line_lost(int worker, std::string_view reason) override;

  void act(const elastic::StartWorker& action);
  void act(const elastic::StopWorker& action);
  void act(const elastic::NotifyWorkers& action);
  void act(const elastic::AssignGeneration& action);
  void act(const elastic::LeaveWorker& action);
  void act(const elastic::Say& action);
  void act(const elastic::Fail& action);
  void act(const elastic::Finish& action);

  void start_observing();
  void step();
  void decide();  // until nothing has happened any more
  void on_stop_signal(int signal);
  void look_at_discovery();
  void hear_of(std::vector<elastic::HostSlots> hosts);
  void stop_lost();
  void leave_world(WorkerRecord& worker, const std::string& reason);
  void note(Failure failure);
  void forget_ended();
  void end_outputs(WorkerRecord& worker);
  static std::string name_of(const WorkerRecord& worker);
  Slot likely_slot(const elastic::StartWorker& action) const;
  Start start_of(const elastic::StartWorker& action, int slots) const;
  int slots_of(const std::string& host) const;
  WorkerRecord* find(int id);
  const WorkerRecord* find_failed(const Failure& failure) const;
  std::string summary() const;

  const Options& options_;
  WorkerLines& lines_;
  Screen& screen_;
  Signals& signals_;
  TimePoint began_;
  PollSet set_;
  Fleet fleet_;
  std::optional<Observatory> observatory_;
  elastic::Driver driver_;
  std::optional<DiscoveryScript> discovery_;
  std::vector<Host> hosts_;  // as they were last heard of
  std::map<int, WorkerRecord> workers_;
  std::deque<elastic::Event> happened_;
  Generation generation_{0};
  bool is_void_ = false;           // it cannot form any more, and its members know
  std::vector<Failure> failures_;  // since the present generation began
  std::string failure_;            // of the job
  int exit_code_ = 0;
  int stop_signal_ = 0;  // what ended the job, if a signal did
};

}  // namespace hvd::launcher
