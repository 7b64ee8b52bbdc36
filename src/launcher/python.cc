#include "launcher/python.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "launcher/workers/process.h"
#include "net/poller.h"

namespace hvd {
namespace {

bool is_program(const std::filesystem::path& path) { return ::access(path.c_str(), X_OK) == 0; }

std::vector<std::filesystem::path> path_folders() {
  std::vector<std::filesystem::path> folders;
  const char* path = std::getenv("PATH");
  for (std::string_view rest = path ? path : ""; !rest.empty();) {
    size_t colon = std::min(rest.find(':'), rest.size());
    if (colon > 0) folders.emplace_back(rest.substr(0, colon));
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return folders;
}

std::string read_output(Child& child, Duration patience) {
  std::string output;
  TimePoint deadline = after(Clock::now(), patience);
  bool is_complete = false;
  while (!is_complete && Clock::now() < deadline) {
    pollfd wanted{.fd = child.out.get(), .events = POLLIN, .revents = 0};
    ::poll(&wanted, 1, milliseconds_until(deadline));
    std::array<char, 4096> buffer;
    ssize_t count = ::read(child.out.get(), buffer.data(), buffer.size());
    if (count > 0) output.append(buffer.data(), static_cast<size_t>(count));
    is_complete = count == 0;
  }
  if (!is_complete) ::kill(child.pid, SIGKILL);
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  return is_complete && ending_of(status).code() == 0 ? output : "";
}

}  // namespace

std::string find_python(const std::string& program) {
  std::vector<std::filesystem::path> folders;
  if (program.find('/') != std::string::npos) {
    folders.push_back(std::filesystem::path(program).parent_path());
  } else {
    for (const auto& folder : path_folders())
      if (is_program(folder / program)) {
        folders.push_back(folder);
        break;
      }
  }
  std::error_code ignored;
  folders.push_back(std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path());
  for (const auto& folder : path_folders()) folders.push_back(folder);
  for (const auto& folder : folders)
    for (const char* name : {"python3", "python"})
      if (is_program(folder / name)) return folder / name;
  return "";
}

std::string output_of(std::vector<std::string> command, Duration patience) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry; ++entry) environment.emplace_back(*entry);
  auto child = spawn({.command = std::move(command), .environment = std::move(environment)});
  return child.ok() ? read_output(*child, patience) : "";
}

}  // namespace hvd
