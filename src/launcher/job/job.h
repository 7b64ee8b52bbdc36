// The life of one job, wherever its workers run. Phases only move forward:
//   running -> stopping (every host was told to stop) -> leaving (no process is left, agents are let go)
// and the job is over when every host is empty or lost.
// Thread rule: single-threaded; run() is one event loop over hosts, screen and signals.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/command_line/options.h"
#include "launcher/hosts/hosts.h"
#include "launcher/observatory/observatory.h"
#include "launcher/output/rank_output.h"
#include "launcher/output/screen.h"
#include "launcher/processes/signals.h"
#include "launcher/workers/failure.h"
#include "launcher/workers/host_runner.h"

namespace hvd::launcher {

class Job {
 public:
  Job(const Options& options, Screen& screen, Signals& signals)
      : options_(options), screen_(screen), signals_(signals), began_(Clock::now()) {}

  // Hosts in any order, then run(). `make_runner` is given where its events go.
  void add_host(const std::string& name, const std::vector<Slot>& slots, Work work,
                const std::function<std::unique_ptr<HostRunner>(HostEvents&)>& make_runner);

  // The exit code: 0 when every worker returned 0; 1 when one failed; 128+n after signal n to the launcher.
  int run();

 private:
  struct RankRecord;
  // What a host reports, with its name.
  struct HostState : HostEvents {
    HostState(Job& its_job, std::string its_name) : job(its_job), name(std::move(its_name)) {}
    void on_started(int rank, pid_t pid) override;
    void on_not_started(int rank, std::string_view reason) override;
    void on_output(int rank, WorkerStream stream, std::string_view bytes) override;
    void on_output_end(int rank, WorkerStream stream) override;
    void on_report(int rank, const EndReport& report) override;
    void on_ended(int rank, const Ended& ended) override;
    void on_observed(uint64_t id, std::string_view json) override {
      if (job.observatory_) job.observatory_->on_observed(name, id, json);
    }
    void on_notice(std::string_view text) override;
    void on_empty() override;
    void on_lost(std::string_view reason, bool is_cause) override;

    void on_own_stop();

    Job& job;
    std::string name;
    std::unique_ptr<HostRunner> runner;
    Work work;
    std::string notice;  // the last one
    bool is_empty = false;
  };
  struct RankRecord {
    Slot slot;
    HostState* host;
    RankOutput streams[2];  // by WorkerStream
    pid_t pid = -1;
    bool is_over = false;  // ended, not started, or lost
    std::optional<Ended> ended;
    std::optional<EndReport> report;
  };

  Status open_outputs();
  void start_all();
  void step();
  void on_stop_signal(int signal);
  void fail(Failure failure);
  bool awaits_cause() const;
  void stop();
  void leave();
  bool all_workers_over() const;
  bool all_hosts_empty() const;
  void start_observing();
  void show_progress();
  std::string summary() const;
  std::string consequences(const Failure& cause) const;
  RankRecord* find(const HostState& host, int rank);

  const Options& options_;
  Screen& screen_;
  Signals& signals_;
  TimePoint began_;
  std::optional<Observatory> observatory_;
  PollSet set_;
  std::deque<HostState> hosts_;                     // addresses stay
  std::vector<std::pair<Slot, HostState*>> slots_;  // by rank once run() has begun
  std::vector<RankRecord> workers_;                 // by rank
  bool is_stopping_ = false, has_gathered_ = false;
  int stop_signal_ = 0;  // what ended the job, if a signal did
  std::vector<Failure> failures_;
  TimePoint stop_by_ = kNever;  // however long the cause takes to end
  size_t stopped_ = 0;          // workers that were alive when the job was stopped
  size_t started_ = 0;
};

}  // namespace hvd::launcher
