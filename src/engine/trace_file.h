// A file that is a complete JSON array of trace events, one per line, at any time, even if the process is killed during
// a write. The timeline's writer appends to it. Thread rule: one caller at a time.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"

namespace hvd {

class TraceFile {
 public:
  static constexpr size_t kPage = 4096;
  static constexpr size_t kMaxEventBytes =
      kPage - 3;  // with a separator, a newline and the bracket it fits into a page

  // The file is empty until the first flush().
  static Result<std::unique_ptr<TraceFile>> create(const std::string& path);

  // `event` is a JSON object. It is in the file after the next flush(), or earlier.
  Status append(std::string_view event);
  Status flush();

 private:
  TraceFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Status start_page();
  bool move_bracket() const;
  Status write(std::string_view text, size_t offset) const;

  UniqueFd fd_;
  std::string path_;
  size_t start_ = 0;    // offset of page_ in the file
  size_t used_ = 0;     // bytes of page_ that hold events
  size_t written_ = 0;  // of these, how many are in the file; the closing bracket follows them there
  char separator_ = '[';
  alignas(kPage) std::array<char, kPage> page_;  // the last page of the file
};

}  // namespace hvd
