#include "backends/mpi/process_manager.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd {
namespace {

Status write_line(int fd, std::string_view line) {
  while (!line.empty()) {
    ssize_t written = ::write(fd, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("cannot write to", "the process manager of MPI");
    line.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

// Byte by byte: bytes after the line must not be consumed, and a process reads only two lines.
Result<std::string> read_line(int fd) {
  std::string line;
  for (char next = 0; next != '\n';) {
    ssize_t got = ::read(fd, &next, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot read from", "the process manager of MPI");
    if (got == 0) return Status(Code::unknown, "the process manager of MPI has closed its connection");
    line += next;
  }
  return line;
}

Status ask(int fd, std::string_view command, std::string_view answer) {
  if (Status status = write_line(fd, fmt::format("cmd={}\n", command)); !status.ok()) return status;
  auto line = read_line(fd);
  if (!line.ok()) return line.status();
  if (line->starts_with(fmt::format("cmd={}", answer))) return {};
  return {Code::unknown, fmt::format("the process manager of MPI answers {} with: {}", command, *line)};
}

}  // namespace

Status leave_process_manager(int fd) {
  if (Status status = ask(fd, "barrier_in", "barrier_out"); !status.ok()) return status;
  return ask(fd, "finalize", "finalize_ack");
}

}  // namespace hvd
