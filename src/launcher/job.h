// The life of one job on this machine. Phases only move forward:
//   running -> stopping (workers were sent SIGTERM) -> killing (everything below us is sent SIGKILL)
// and the job is over when every worker was reaped, no descendant is left and all output was read.
// Thread rule: single-threaded; run() is one event loop over pipes, consoles and signals.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launcher/assignment.h"
#include "launcher/environment.h"
#include "launcher/options.h"
#include "launcher/output.h"
#include "launcher/process.h"

namespace hvd {

class Job {
 public:
  // `signals` is a signalfd of SIGCHLD and the signals that stop the job.
  Job(const Options& options, const std::vector<Slot>& slots, Meeting meeting, UniqueFd signals);

  // The exit code: 0 when every worker returned 0; 1 when one failed; 128+n after signal n to the launcher.
  int run();

 private:
  enum class Phase { running, stopping, killing };
  struct Stream {
    UniqueFd fd;  // none once the worker's end was reached
    LinePrefixer prefixer;
    Console* console;
    std::optional<Console> file;
    Tail tail;
  };
  struct Worker {
    Slot slot;
    pid_t pid;
    Stream out, err;
    std::optional<Ending> ending;
  };

  Status start(const Slot& slot, const std::vector<std::string>& environment);
  Result<std::optional<Console>> open_file(const Slot& slot, std::string_view stream) const;
  bool over() const;
  void step();
  void read_signals();
  void on_stop_signal(int signal);
  void reap();
  void on_ending(Worker& worker, Ending ending);
  void stop();
  void kill_everything();
  void look_for_leftovers();
  void read_stream(Stream& stream);
  void forward(Stream& stream, std::string_view bytes, bool last);
  void say(std::string_view text) { err_->append(std::string("horovodrun: ").append(text).append("\n")); }
  std::string summary() const;
  void flush_consoles();

  const Options& options_;
  const std::vector<Slot>& slots_;
  Meeting meeting_;
  UniqueFd signals_;
  Console out_;
  std::optional<Console> own_err_;  // none when stderr leads to the same place as stdout, to keep their lines apart
  Console* err_;
  std::deque<Worker> workers_;
  std::vector<pollfd> poll_;
  Phase phase_ = Phase::running;
  TimePoint kill_at_ = kNever;
  bool leftovers_gone_ = false;
  int stop_signal_ = 0;                   // what ended the job, if a signal did
  const Worker* first_failed_ = nullptr;  // or else this worker
  bool start_failed_ = false;
  size_t stopped_ = 0;  // workers that were alive when the job was stopped
};

}  // namespace hvd
