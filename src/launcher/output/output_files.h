// The files of --output-filename, written by a separate thread: a file system that hangs, or a pipe without a reader,
// must not stop the loop that serves agents and workers. Data that cannot be written is kept here; callers check
// is_full() and stop reading from the workers. Dropped data is always reported. Thread rule: one thread, besides the
// internal one. Only open() blocks, and for a second at most.
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
  ~OutputFiles();  // unwritten data is lost
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  // Creates the file and its folder. If that takes too long, the file counts as open and its data waits.
  Result<int> open(const std::string& path);
  void append(int file, std::string_view bytes);
  void close(int file);  // after everything is written

  bool is_full() const;
  bool is_empty() const;            // everything is written
  size_t count_waiting() const;     // bytes
  std::vector<std::string> news();  // messages for the user: files that fail or hang
  void add_to(PollSet& set);        // wakes when there is room, everything is written, or there are messages

 private:
  struct Task {
    enum class Kind { open, write, close };
    Kind kind = Kind::write;
    int file = 0;
    std::string text;  // the path, or the data
  };
  struct State;

  static void write_all(const std::shared_ptr<State>& state);
  void put(Task task);
  void start();

  const Duration patience_;  // time until a hanging file is reported
  std::shared_ptr<State> state_;
  std::jthread thread_;
  int last_file_ = 0;
  bool is_said_ = false;  // a hanging file was reported
};

}  // namespace hvd::launcher
