// From a worker's pipe to the console: whole lines, prefixed, never mixed with another rank's.
// Vocabulary: a *line* ends at \n, \r or \r\n, which is kept; a *partial* line is held back until its end arrives.
// Thread rule: one caller at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace hvd::launcher {

// Puts "[<label>]<stdout>:" in front of every line of one stream; the label is the rank.
class LinePrefixer {
 public:
  LinePrefixer(std::string_view label, std::string_view stream, bool timestamp);
  void set_label(std::string_view label);  // from the next line on
  void feed(std::string_view bytes, std::string& out);
  // The stream has ended: the partial line, completed by a newline.
  void finish(std::string& out);

 private:
  void begin_line(std::string& out) const;
  void end_line(std::string_view rest, std::string& out);

  std::string stream_, prefix_;
  bool timestamp_;
  std::string partial_;
  bool begun_ = false;         // the current line is so long that its beginning has been passed on
  bool after_return_ = false;  // the last byte was \r: a \n that follows belongs to the same line
};

// The last lines of a stream, for the summary of a failure.
class Tail {
 public:
  void feed(std::string_view bytes);
  std::vector<std::string_view> last_lines(size_t count) const;  // empty ones left out; valid until the next feed

 private:
  std::string bytes_;
};

// A destination that never blocks: what cannot be written now waits here. Writers look at full() and hold back.
// A reader that went away does not end the training: what is meant for it is dropped.
class Console {
 public:
  // Terminals and pipes are opened again, because making the inherited description non-blocking would change it for
  // every process that shares it.
  static Console from_inherited(int fd);

  void append(std::string_view bytes);
  void flush();  // writes what can be written now
  bool empty() const { return written_ == pending_.size(); }
  bool full() const { return pending_.size() - written_ > kFull; }
  int fd() const { return fd_.get(); }

 private:
  static constexpr size_t kFull = 32 << 20;  // a terminal that is paused for a while does not block the ranks
  explicit Console(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  std::string pending_;
  size_t written_ = 0;  // of pending_
  bool lost_ = false;
};

// Whether two descriptors lead to the same file, terminal or pipe.
bool same_file(int one, int other);

}  // namespace hvd::launcher
