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

// Prefixes every line of one stream with "[<label>]<stdout>:"; the label is the rank.
class LinePrefixer {
 public:
  LinePrefixer(std::string_view label, std::string_view stream, bool timestamp);
  void set_label(std::string_view label);  // from the next line on
  void feed(std::string_view bytes, std::string& out);
  // At the end of the stream: outputs the partial line, completed by a newline.
  void finish(std::string& out);

 private:
  void begin_line(std::string& out) const;
  void end_line(std::string_view rest, std::string& out);

  std::string stream_, prefix_;
  bool timestamp_;
  std::string partial_;
  bool begun_ = false;         // the start of the current long line has already been output
  bool after_return_ = false;  // the last byte was \r: a following \n belongs to the same line
};

// The last lines of a stream, for the summary of a failure.
class Tail {
 public:
  void feed(std::string_view bytes);
  std::vector<std::string_view> last_lines(size_t count) const;  // without empty lines; valid until the next feed

 private:
  std::string bytes_;
};

// A destination that never blocks: data that cannot be written is kept here. Producers check full() and pause. If the
// reader is gone, its data is dropped, so that it cannot end the training.
class Console {
 public:
  // Opens terminals and pipes again, because making the inherited description non-blocking would affect all processes
  // that share it.
  static Console from_inherited(int fd);

  void append(std::string_view bytes);
  void flush();  // writes as much as possible now
  bool empty() const { return written_ == pending_.size(); }
  bool full() const { return pending_.size() - written_ > kFull; }
  int fd() const { return fd_.get(); }

 private:
  // enough that a terminal that is paused for a while does not block the ranks
  static constexpr size_t kFull = 32 << 20;
  explicit Console(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  std::string pending_;
  size_t written_ = 0;  // of pending_
  bool lost_ = false;
};

// Whether two descriptors refer to the same file, terminal or pipe.
bool same_file(int one, int other);

}  // namespace hvd::launcher
