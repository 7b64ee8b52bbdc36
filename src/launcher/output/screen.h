// The launcher's output: its stdout and stderr, on a terminal one status line, and copies in files. Thread rule: one
// thread. Nothing blocks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/output/output.h"
#include "launcher/output/output_files.h"
#include "launcher/processes/poll_set.h"
#include "launcher/processes/signals.h"
#include "launcher/workers/host_runner.h"

namespace hvd::launcher {

class Screen {
 public:
  Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void show(WorkerStream stream, std::string_view lines);
  void say(std::string_view text);  // prints one line of the launcher's own
  // Replaces the status line at the bottom; empty removes it. Shown only if stderr is a terminal.
  void set_status(std::string text);

  bool is_terminal() const { return is_terminal_; }
  bool is_full(WorkerStream stream) { return console(stream).full() || files_.is_full(); }
  bool is_empty() { return out_.empty() && err_->empty() && files_.is_empty(); }
  OutputFiles& files() { return files_; }
  void add_to(PollSet& set);
  void flush();

 private:
  Console& console(WorkerStream stream) { return stream == WorkerStream::out ? out_ : *err_; }
  void hide_status();

  OutputFiles files_;
  Console out_;
  std::optional<Console> own_err_;  // none if stderr is the same file as stdout, to keep their lines apart
  Console* err_;
  bool is_terminal_;
  std::string status_;
  bool is_shown_ = false;
};

// Readers of our output may take their time, but not after the user has stopped the job.
void flush_at_end(Screen& screen, Signals& signals, PollSet& set, bool was_stopped);

}  // namespace hvd::launcher
