// Where the launcher shows things: its stdout and stderr, and on a terminal one line that tells how far the start is;
// and the files that get the same.
// Thread rule: one thread. Nothing blocks.
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
  void say(std::string_view text);  // one line of the launcher's own
  // Replaces the line at the bottom; empty removes it. Shown only where stderr is a terminal.
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
  std::optional<Console> own_err_;  // none when stderr leads to the same place as stdout, to keep their lines apart
  Console* err_;
  bool is_terminal_;
  std::string status_;
  bool is_shown_ = false;
};

// The readers of our output take the time they need, but not after the user asked us to stop.
void flush_at_end(Screen& screen, Signals& signals, PollSet& set, bool was_stopped);

}  // namespace hvd::launcher
