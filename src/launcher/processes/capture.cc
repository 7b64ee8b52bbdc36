#include "launcher/processes/capture.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "net/poller.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMostOutput = 4 << 20;                     // the rest is read and dropped
constexpr Duration kEndOfKilled = std::chrono::seconds(1);  // longer only if the kernel cannot end it now

// Reads all available data; closes the descriptor at its end.
bool take(UniqueFd& fd, std::string& text) {
  if (!fd) return false;
  std::array<char, 64 << 10> buffer;
  ssize_t count = ::read(fd.get(), buffer.data(), buffer.size());
  if (count > 0) text.append(buffer.data(), std::min(static_cast<size_t>(count), kMostOutput - text.size()));
  if (count == 0) fd = UniqueFd();
  return count > 0;
}

void wait_for(const Child& child, const UniqueFd& end, TimePoint until) {
  pollfd wanted[] = {{.fd = child.out ? child.out.get() : -1, .events = POLLIN, .revents = 0},
                     {.fd = child.err ? child.err.get() : -1, .events = POLLIN, .revents = 0},
                     {.fd = end ? end.get() : -1, .events = POLLIN, .revents = 0}};
  ::poll(wanted, 3, milliseconds_until(until));
}

bool has_come(const UniqueFd& end) {
  pollfd wanted{.fd = end.get(), .events = POLLIN, .revents = 0};
  return end && ::poll(&wanted, 1, 0) == 1;
}

// Detects the end of the program by its pidfd, if the kernel supports that: its background processes may hold the
// pipes.
bool read_until_end(Child& child, const UniqueFd& end, Captured& captured, TimePoint deadline) {
  while (Clock::now() < deadline) {
    bool has_ended = has_come(end);
    bool has_more = take(child.out, captured.out);
    has_more = take(child.err, captured.err) || has_more;
    if ((has_ended && !has_more) || (!child.out && !child.err)) return true;
    if (!has_more) wait_for(child, end, deadline);
  }
  return false;
}

}  // namespace

Result<Captured> capture(std::vector<std::string> command, Duration patience) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry; ++entry) environment.emplace_back(*entry);
  std::string name = command[0];
  auto child = spawn({.command = std::move(command), .environment = std::move(environment)});
  if (!child.ok()) return child.status();
  UniqueFd end(static_cast<int>(::syscall(SYS_pidfd_open, child->pid, 0)));
  Captured captured;
  TimePoint deadline = after(Clock::now(), patience);
  bool is_complete = read_until_end(*child, end, captured, deadline);
  if (is_complete && !has_come(end)) {  // it has closed its output, and is about to end
    child->out = UniqueFd();
    child->err = UniqueFd();
    wait_for(*child, end, deadline);
    is_complete = !end || has_come(end);
  }
  if (!is_complete || end) ::kill(-child->pid, SIGKILL);  // including its background processes
  int status = 0;
  if (!is_complete && end) {
    child->out = UniqueFd();
    child->err = UniqueFd();
    wait_for(*child, end, Clock::now() + kEndOfKilled);
  }
  ::waitpid(child->pid, &status, is_complete || !end ? 0 : WNOHANG);
  if (!is_complete)
    return Status(Code::timed_out, fmt::format("{} did not end within {:.0f} s", name, seconds_of(patience)));
  captured.ending = ending_of(status);
  return captured;
}

std::string output_of(std::vector<std::string> command, Duration patience) {
  auto captured = capture(std::move(command), patience);
  return captured.ok() && captured->ending.code() == 0 ? captured->out : "";
}

}  // namespace hvd::launcher
