// The files of --output-filename, written by a thread of its own: a file system that hangs, or a pipe that no process
// reads, must not stop the loop that keeps agents and workers alive. What cannot be written waits here; callers look at
// is_full() and take no more from the workers. Nothing is dropped without being said.
// Thread rule: one thread, beside the one inside. Only open() blocks, and no longer than a second.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launcher/processes/poll_set.h"

namespace hvd::launcher {

class OutputFiles {
 public:
  explicit OutputFiles(size_t room = 32 << 20, Duration patience = std::chrono::seconds(5));
  ~OutputFiles();  // what is not written by now is lost
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  // Creates the file, and the folder that it is in. One that takes longer counts as opened: what is meant for it waits.
  Result<int> open(const std::string& path);
  void append(int file, std::string_view bytes);
  void close(int file);  // once everything is written

  bool is_full() const;
  bool is_empty() const;            // everything is written
  size_t count_waiting() const;     // bytes
  std::vector<std::string> news();  // what the user has to know: files that fail or hang
  void add_to(PollSet& set);        // wakes when there is room, everything is written, or there is news

 private:
  struct Task {
    enum class Kind { open, write, close };
    Kind kind = Kind::write;
    int file = 0;
    std::string text;  // the path, or what to write
  };
  struct State;

  static void write_all(const std::shared_ptr<State>& state);
  void put(Task task);
  void start();

  const Duration patience_;  // until a file that hangs is said
  std::shared_ptr<State> state_;
  std::jthread thread_;
  int last_file_ = 0;
  bool is_said_ = false;  // that a file hangs
};

}  // namespace hvd::launcher
