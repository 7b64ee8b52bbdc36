#include "launcher/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

namespace hvd {
namespace {

struct Pipe {
  UniqueFd read, write;
};

Result<Pipe> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return system_error("cannot create", "a pipe");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> list;
  list.reserve(strings.size() + 1);
  for (const std::string& text : strings) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

// Between fork and exec: only async-signal-safe calls.
[[noreturn]] void become_worker(char* const* command, char* const* environment, pid_t parent, int out, int err,
                                int failure) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the launcher died before prctl
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0 && ::dup2(null, STDIN_FILENO) >= 0 && ::dup2(out, STDOUT_FILENO) >= 0 &&
      ::dup2(err, STDERR_FILENO) >= 0)
    ::execvpe(command[0], command, environment);
  int error = errno;
  [[maybe_unused]] ssize_t told = ::write(failure, &error, sizeof error);
  ::_exit(127);
}

struct Relation {
  pid_t pid, parent;
};

// "pid (name) state ppid ...", where name may hold anything. Zombies are not living.
std::optional<Relation> read_relation(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text, '\0');
  size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 4 > text.size() || text[name_end + 2] == 'Z') return std::nullopt;
  Relation relation{.pid = pid, .parent = 0};
  std::from_chars(text.data() + name_end + 4, text.data() + text.size(), relation.parent);
  return relation;
}

}  // namespace

Result<Child> spawn(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
  auto out = make_pipe();
  if (!out.ok()) return out.status();
  auto err = make_pipe();
  if (!err.ok()) return err.status();
  auto failure = make_pipe();
  if (!failure.ok()) return failure.status();
  std::vector<char*> argv = pointers(command), envp = pointers(environment);
  pid_t self = ::getpid();
  pid_t pid = ::fork();
  if (pid < 0) return system_error("cannot start", command[0]);
  if (pid == 0) become_worker(argv.data(), envp.data(), self, out->write.get(), err->write.get(), failure->write.get());
  ::setpgid(pid, pid);  // the child does it too: whoever comes first
  failure->write = UniqueFd();
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(failure->read.get(), &error, sizeof error);  // ends when the child has executed its program
  } while (got < 0 && errno == EINTR);
  if (got == sizeof error) {
    ::waitpid(pid, nullptr, 0);
    return system_error("cannot run", command[0], error);
  }
  ::fcntl(out->read.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(err->read.get(), F_SETFL, O_NONBLOCK);
  return Child{.pid = pid, .out = std::move(out->read), .err = std::move(err->read)};
}

Ending ending_of(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {.signalled = true, .number = WTERMSIG(wait_status)};
  return {.signalled = false, .number = WEXITSTATUS(wait_status)};
}

std::string describe(Ending ending) {
  if (!ending.signalled) return fmt::format("exit code {}", ending.number);
  const char* name = ::sigabbrev_np(ending.number);
  return fmt::format("killed by {} (exit code {})", name ? fmt::format("SIG{}", name) : std::to_string(ending.number),
                     ending.code());
}

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> descendants() {
  std::multimap<pid_t, pid_t> children;
  std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    pid_t pid = 0;
    auto [end, error] = std::from_chars(entry->d_name, entry->d_name + std::strlen(entry->d_name), pid);
    if (error != std::errc() || *end != '\0') continue;
    if (auto relation = read_relation(pid)) children.emplace(relation->parent, relation->pid);
  }
  std::vector<pid_t> found;
  auto add_children_of = [&](pid_t parent) {
    auto [first, last] = children.equal_range(parent);
    for (auto child = first; child != last; ++child) found.push_back(child->second);
  };
  add_children_of(::getpid());
  for (size_t i = 0; i < found.size(); ++i) add_children_of(found[i]);
  return found;
}

}  // namespace hvd
