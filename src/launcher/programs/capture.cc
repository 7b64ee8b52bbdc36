#include "launcher/programs/capture.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "net/poller.h"

namespace hvd {
namespace {

// Takes what there is to read; the descriptor is closed at the end.
void take(UniqueFd& fd, std::string& text) {
  std::array<char, 4096> buffer;
  ssize_t count = ::read(fd.get(), buffer.data(), buffer.size());
  if (count > 0) text.append(buffer.data(), static_cast<size_t>(count));
  if (count == 0) fd = UniqueFd();
}

}  // namespace

Result<Captured> capture(std::vector<std::string> command, Duration patience) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry; ++entry) environment.emplace_back(*entry);
  std::string name = command[0];
  auto child = spawn({.command = std::move(command), .environment = std::move(environment)});
  if (!child.ok()) return child.status();
  Captured captured;
  TimePoint deadline = after(Clock::now(), patience);
  while ((child->out || child->err) && Clock::now() < deadline) {
    pollfd wanted[] = {{.fd = child->out ? child->out.get() : -1, .events = POLLIN, .revents = 0},
                       {.fd = child->err ? child->err.get() : -1, .events = POLLIN, .revents = 0}};
    ::poll(wanted, 2, milliseconds_until(deadline));
    if (wanted[0].revents != 0) take(child->out, captured.out);
    if (wanted[1].revents != 0) take(child->err, captured.err);
  }
  bool is_complete = !child->out && !child->err;
  if (!is_complete) ::kill(-child->pid, SIGKILL);
  int status = 0;
  ::waitpid(child->pid, &status, 0);
  if (!is_complete)
    return Status(Code::timed_out, fmt::format("{} did not end within {:.0f} s", name, seconds_of(patience)));
  captured.ending = ending_of(status);
  return captured;
}

std::string output_of(std::vector<std::string> command, Duration patience) {
  auto captured = capture(std::move(command), patience);
  return captured.ok() && captured->ending.code() == 0 ? captured->out : "";
}

}  // namespace hvd
