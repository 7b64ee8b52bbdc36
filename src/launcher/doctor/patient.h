// One host while its probe runs: the probe's output and end, from the host's events.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <string>

#include "launcher/doctor/facts.h"
#include "launcher/output/output.h"
#include "launcher/workers/host_runner.h"

namespace hvd::launcher {

class Patient : public HostEvents {
 public:
  explicit Patient(HostExam& exam) : exam_(exam) {}

  void on_started(int, pid_t) override {}
  void on_not_started(int worker, std::string_view reason) override;
  void on_output(int worker, WorkerStream stream, std::string_view bytes) override;
  void on_output_end(int, WorkerStream) override {}
  void on_report(int, const EndReport&) override {}
  void on_observed(uint64_t, std::string_view) override {}
  void on_ended(int worker, const Ended& ended) override;
  void on_notice(std::string_view) override {}
  void on_empty() override { is_empty_ = true; }
  void on_lost(std::string_view reason, bool is_cause) override;

  bool is_over() const { return is_over_; }    // the probe has ended
  bool is_empty() const { return is_empty_; }  // and no process is left
  void give_up(std::string_view reason);       // before the probe is stopped

  std::unique_ptr<HostRunner> runner;

 private:
  void take_line(std::string_view line);
  void end(std::string reason);

  HostExam& exam_;
  std::string partial_;  // line
  Tail said_;            // from stderr
  bool is_over_ = false, is_empty_ = false;
};

}  // namespace hvd::launcher
