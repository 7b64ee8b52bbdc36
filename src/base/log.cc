#include "base/log.h"

#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <ctime>

namespace hvd {
namespace {

std::atomic<int> enabled_level{static_cast<int>(LogLevel::warning)};
std::atomic<bool> time_hidden{false};
std::atomic<bool> is_json{false};
std::atomic<int32_t> log_rank{-1};

constexpr std::string_view kLevelNames[] = {"trace", "debug", "info", "warning", "error", "fatal"};

std::string_view file_name(const char* path) {
  std::string_view name(path);
  size_t slash = name.rfind('/');
  return slash == std::string_view::npos ? name : name.substr(slash + 1);
}

std::string now_text() {
  timeval now{};
  ::gettimeofday(&now, nullptr);
  tm local{};
  ::localtime_r(&now.tv_sec, &local);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:06}: ", local.tm_year + 1900, local.tm_mon + 1,
                     local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec, now.tv_usec);
}

std::string time_field() {
  timeval now{};
  ::gettimeofday(&now, nullptr);
  return fmt::format("\"time\":{}.{:06},", now.tv_sec, now.tv_usec);
}

// In a string of JSON. Bytes that are no UTF-8 stay as they are.
std::string escaped(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (c == '\n') {
      result += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result;
}

std::string json_line(LogLevel level, std::string_view file, int line, std::string_view message) {
  int32_t rank = log_rank.load(std::memory_order_relaxed);
  return fmt::format("{{{}\"level\":\"{}\",\"file\":\"{}\",\"line\":{},\"pid\":{},{}\"message\":\"{}\"}}\n",
                     time_hidden ? "" : time_field(), kLevelNames[static_cast<int>(level)], escaped(file), line,
                     ::getpid(), rank < 0 ? "" : fmt::format("\"rank\":{},", rank), escaped(message));
}

}  // namespace

void set_log_settings(LogSettings settings) {
  enabled_level = static_cast<int>(settings.level);
  time_hidden = settings.hide_time;
  is_json = settings.is_json;
}

void set_log_rank(int32_t rank) { log_rank = rank; }

bool log_enabled(LogLevel level) { return static_cast<int>(level) >= enabled_level.load(std::memory_order_relaxed); }

void write_log(LogLevel level, const char* file, int line, std::string_view message) {
  std::string text = is_json ? json_line(level, file_name(file), line, message)
                             : fmt::format("[{}{} {}:{}] {}\n", time_hidden ? "" : now_text(),
                                           "TDIWEF"[static_cast<int>(level)], file_name(file), line, message);
  int fd = level <= LogLevel::info ? STDOUT_FILENO : STDERR_FILENO;
  for (std::string_view rest = text; !rest.empty();) {
    ssize_t written = ::write(fd, rest.data(), rest.size());
    if (written < 0 && errno != EINTR) return;  // a closed stderr must not stop training
    if (written > 0) rest.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace hvd
