// The log of this process. Lines look like
//   [2026-11-16 10:20:30.123456: W engine.cc:42] rank 3 lost rank 1: connection closed
// or, for programs that collect them,
//   {"time":1794824430.12,"level":"warning","file":"engine.cc","line":42,"pid":7,"rank":3,"message":"lost rank 1"}
// Levels up to info go to stdout, the others to stderr. An error is logged once, where it is decided.
// Thread rule: any thread; a line is written with one write().
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace hvd {

enum class LogLevel : int { trace = 0, debug = 1, info = 2, warning = 3, error = 4, fatal = 5 };

struct LogSettings {
  LogLevel level = LogLevel::warning;
  bool hide_time = false;
  bool is_json = false;
};

void set_log_settings(LogSettings settings);
void set_log_rank(int32_t rank);  // for lines in JSON; negative: it has none
bool log_enabled(LogLevel level);
void write_log(LogLevel level, const char* file, int line, std::string_view message);

// Captures the caller's source location, so log calls need no macro.
struct LogFormat {
  fmt::string_view format;
  const char* file;
  int line;
  template <class Text>
  LogFormat(const Text& text, const char* where = __builtin_FILE(), int at = __builtin_LINE())
      : format(text), file(where), line(at) {}
};

template <class... Args>
void log(LogLevel level, const LogFormat& format, const Args&... args) {
  if (log_enabled(level))
    write_log(level, format.file, format.line, fmt::vformat(format.format, fmt::make_format_args(args...)));
}
template <class... Args>
void log_debug(const LogFormat& format, const Args&... args) {
  log(LogLevel::debug, format, args...);
}
template <class... Args>
void log_info(const LogFormat& format, const Args&... args) {
  log(LogLevel::info, format, args...);
}
template <class... Args>
void log_warning(const LogFormat& format, const Args&... args) {
  log(LogLevel::warning, format, args...);
}
template <class... Args>
void log_error(const LogFormat& format, const Args&... args) {
  log(LogLevel::error, format, args...);
}

}  // namespace hvd
