#include "launcher/processes/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/end_report.h"

namespace hvd::launcher {
namespace {

struct Pipe {
  UniqueFd read, write;
};

Result<Pipe> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return system_error("cannot create", "a pipe");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// Both ends can be read and written.
Result<Pipe> make_conversation() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return system_error("cannot create", "a socket");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// To a high number, so that scripts do not use it for their own files; lower if the limit of open files is.
UniqueFd moved_up(UniqueFd fd) {
  UniqueFd high(::fcntl(fd.get(), F_DUPFD_CLOEXEC, kLowestReportDescriptor));
  return high ? std::move(high) : std::move(fd);
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> list;
  list.reserve(strings.size() + 1);
  for (const std::string& text : strings) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

struct Ends {
  int in, out, err, failure;
  std::span<const int> kept;
};

void bind_to_cpus(const cpu_set_t* cpus) {
  if (cpus != nullptr) ::sched_setaffinity(0, sizeof *cpus, cpus);  // errors are ignored: the affinity stays as it was
}

// Runs between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(char* const* command, char* const* environment, const char* directory, const cpu_set_t* cpus,
                         pid_t parent, Ends ends) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the launcher died before prctl
  bind_to_cpus(cpus);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  for (int kept : ends.kept) ::fcntl(kept, F_SETFD, 0);
  int in = ends.in >= 0 ? ends.in : ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (in >= 0 && ::dup2(in, STDIN_FILENO) >= 0 && ::dup2(ends.out, STDOUT_FILENO) >= 0 &&
      ::dup2(ends.err, STDERR_FILENO) >= 0 && (*directory == '\0' || ::chdir(directory) == 0)) {
    // Found as by a shell with that environment; otherwise in this host's own PATH.
    char** own = std::exchange(environ, const_cast<char**>(environment));
    ::execvp(command[0], command);
    environ = own;
    if (errno == ENOENT) ::execvpe(command[0], command, environment);
  }
  int error = errno;
  [[maybe_unused]] ssize_t told = ::write(ends.failure, &error, sizeof error);
  ::_exit(127);
}

struct Relation {
  pid_t pid, parent;
};

// "pid (name) state ppid ...", where name may contain any character. Zombies are not counted as living.
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

Result<ReportPipe> make_report_pipe() {
  auto pipe = make_pipe();
  if (!pipe.ok()) return pipe.status();
  ::fcntl(pipe->read.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(pipe->write.get(), F_SETFL, O_NONBLOCK);
  return ReportPipe{.read = std::move(pipe->read), .write = moved_up(std::move(pipe->write))};
}

Result<Child> spawn(const Program& program) {
  auto out = program.converse ? make_conversation() : make_pipe();
  if (!out.ok()) return out.status();
  auto err = make_pipe();
  if (!err.ok()) return err.status();
  auto failure = make_pipe();
  if (!failure.ok()) return failure.status();
  std::vector<char*> argv = pointers(program.command), envp = pointers(program.environment);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (int cpu : program.cpus) CPU_SET(static_cast<size_t>(cpu), &cpus);
  Ends ends{.in = program.converse ? out->write.get() : -1,
            .out = out->write.get(),
            .err = err->write.get(),
            .failure = failure->write.get(),
            .kept = program.kept};
  pid_t self = ::getpid();
  pid_t pid = ::fork();
  if (pid < 0) return system_error("cannot start", program.command[0]);
  if (pid == 0)
    become(argv.data(), envp.data(), program.directory.c_str(), program.cpus.empty() ? nullptr : &cpus, self, ends);
  ::setpgid(pid, pid);  // the child does it too; whichever comes first takes effect
  failure->write = UniqueFd();
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(failure->read.get(), &error, sizeof error);  // ends when the child has executed its program
  } while (got < 0 && errno == EINTR);
  if (got == sizeof error) {
    ::waitpid(pid, nullptr, 0);
    return system_error("cannot run", program.command[0], error);
  }
  ::fcntl(out->read.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(err->read.get(), F_SETFL, O_NONBLOCK);
  Child child{.pid = pid, .in = UniqueFd(), .out = UniqueFd(), .err = std::move(err->read)};
  (program.converse ? child.in : child.out) = std::move(out->read);
  return child;
}

Ending ending_of(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {.signalled = true, .number = WTERMSIG(wait_status)};
  return {.signalled = false, .number = WEXITSTATUS(wait_status)};
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

std::string describe(Ending ending) {
  if (!ending.signalled) return fmt::format("exit code {}", ending.number);
  return fmt::format("killed by {} (exit code {})", signal_name(ending.number), ending.code());
}

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

bool has_no_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

std::vector<pid_t> descendants(const std::set<pid_t>& except, pid_t root) {
  if (root <= 0 && has_no_children()) return {};  // avoids reading all of /proc
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
    for (auto child = first; child != last; ++child)
      if (!except.contains(child->second)) found.push_back(child->second);
  };
  add_children_of(root > 0 ? root : ::getpid());
  for (size_t i = 0; i < found.size(); ++i) add_children_of(found[i]);
  return found;
}

}  // namespace hvd::launcher
