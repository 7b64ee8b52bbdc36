#include "launcher/output/output.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>

namespace hvd::launcher {
namespace {

constexpr size_t kLongestHeldLine = 1 << 20;
constexpr size_t kTailBytes = 8 << 10;
constexpr size_t kSlack = 1 << 20;  // most written bytes that a console keeps before it moves the rest

std::string asctime_now() {
  time_t now = ::time(nullptr);
  tm local{};
  ::localtime_r(&now, &local);
  char text[64];
  return std::string(text, std::strftime(text, sizeof text, "%a %b %e %H:%M:%S %Y", &local));
}

}  // namespace

LinePrefixer::LinePrefixer(std::string_view label, std::string_view stream, bool timestamp)
    : stream_(stream), timestamp_(timestamp) {
  set_label(label);
}

void LinePrefixer::set_label(std::string_view label) { prefix_ = fmt::format("[{}]<{}>:", label, stream_); }

void LinePrefixer::begin_line(std::string& out) const {
  if (timestamp_) out += asctime_now();
  out += prefix_;
}

void LinePrefixer::end_line(std::string_view rest, std::string& out) {
  if (!begun_) begin_line(out);
  out.append(partial_).append(rest);
  partial_.clear();
  begun_ = false;
}

void LinePrefixer::feed(std::string_view bytes, std::string& out) {
  size_t newline = 0;  // the next one at or after `at`; found once per line, not once per \r
  bool newline_known = false;
  for (size_t at = 0; at < bytes.size();) {
    if (std::exchange(after_return_, false) && bytes[at] == '\n') {
      out += '\n';
      ++at;
      continue;
    }
    if (!newline_known || newline < at) newline = std::min(bytes.find('\n', at), bytes.size());
    newline_known = true;
    const void* found = std::memchr(bytes.data() + at, '\r', newline - at);
    size_t end = found ? static_cast<size_t>(static_cast<const char*>(found) - bytes.data()) : newline;
    if (end == bytes.size()) {
      partial_.append(bytes.substr(at));
      break;
    }
    after_return_ = bytes[end] == '\r';
    end_line(bytes.substr(at, end + 1 - at), out);
    at = end + 1;
  }
  if (partial_.size() > kLongestHeldLine) {
    end_line("", out);
    begun_ = true;
  }
}

void LinePrefixer::finish(std::string& out) {
  if (!partial_.empty() || begun_) end_line("\n", out);
}

void Tail::feed(std::string_view bytes) {
  bytes_.append(bytes.substr(bytes.size() - std::min(bytes.size(), kTailBytes)));
  if (bytes_.size() > 2 * kTailBytes) bytes_.erase(0, bytes_.size() - kTailBytes);
}

std::vector<std::string_view> Tail::last_lines(size_t count) const {
  std::vector<std::string_view> lines;
  for (std::string_view rest = bytes_; lines.size() < count;) {
    size_t end = rest.find_last_not_of("\r\n") + 1;  // npos + 1 is 0
    if (end == 0) break;
    rest = rest.substr(0, end);
    size_t begin = rest.find_last_of("\r\n") + 1;
    lines.push_back(rest.substr(begin));
    rest = rest.substr(0, begin);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

Console Console::from_inherited(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode))) {
    UniqueFd own(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (own) return Console(std::move(own));
  }
  return Console(UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 3)));
}

void Console::append(std::string_view bytes) {
  if (lost_) return;
  if (written_ > pending_.size() / 2 && written_ > kSlack) {  // with a reader that is always slow it is never empty
    pending_.erase(0, written_);
    written_ = 0;
  }
  pending_.append(bytes);
}

void Console::flush() {
  while (!empty()) {
    ssize_t count = ::write(fd_.get(), pending_.data() + written_, pending_.size() - written_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0) {
      lost_ = true;
      written_ = pending_.size();
      break;
    }
    written_ += static_cast<size_t>(count);
  }
  pending_.clear();
  written_ = 0;
}

bool same_file(int one, int other) {
  struct stat a {
  }, b{};
  return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace hvd::launcher
