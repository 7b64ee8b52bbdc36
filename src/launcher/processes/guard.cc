#include "launcher/processes/guard.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace hvd::launcher {
namespace {

pid_t visible = 0;  // set before there is a second process

// Kills processes that the launcher left behind; none if it ended by itself.
void kill_leftovers() {
  for (auto left = descendants(); !left.empty(); left = descendants()) {
    for (pid_t pid : left) ::kill(pid, SIGKILL);
    ::waitpid(-1, nullptr, 0);
  }
}

// Forwards signals until the process below has ended.
Ending watch(pid_t below, const sigset_t& signals) {
  while (true) {
    int signal = 0;
    ::sigwait(&signals, &signal);
    if (signal != SIGCHLD) {
      ::kill(below, signal);
      continue;
    }
    int status = 0;
    if (::waitpid(below, &status, WNOHANG) == below) return ending_of(status);
  }
}

// Runs `body` in a child process with its own session. Returns its pid; -1: an error was printed.
pid_t start_below(const std::function<int()>& body) {
  pid_t self = ::getpid();
  pid_t pid = ::fork();
  if (pid < 0) std::perror("horovodrun: cannot fork");
  if (pid != 0) return pid;
  ::setsid();  // Ctrl-C reaches only the visible process, which forwards it once
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != self) ::_exit(1);
  std::exit(body());
}

sigset_t watched_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (int signal : kStopSignals) ::sigaddset(&signals, signal);
  ::sigaddset(&signals, kDumpSignal);
  ::sigaddset(&signals, SIGCHLD);
  return signals;
}

int guard(const char* name, const std::function<int()>& launcher, const sigset_t& signals) {
  adopt_orphans();
  pid_t pid = start_below(launcher);
  if (pid < 0) return 1;
  Ending ending = watch(pid, signals);
  kill_leftovers();
  if (ending.signalled) fmt::print(stderr, "horovodrun: the {} was {}\n", name, describe(ending));
  return ending.code();
}

}  // namespace

int run_guarded(const char* name, const std::function<int()>& launcher) {
  visible = ::getpid();
  sigset_t signals = watched_signals();
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);  // inherited by the launcher
  if (has_no_children()) return guard(name, launcher, signals);
  // The process that executed us may have left us children, as in `sh -c 'server & exec horovodrun ...'`. They and
  // their children do not belong to the job; so the job gets a guard without children.
  pid_t pid = start_below([&] { return guard(name, launcher, signals); });
  if (pid < 0) return 1;
  Ending ending = watch(pid, signals);
  if (ending.signalled) fmt::print(stderr, "horovodrun: the guard of the {} was {}\n", name, describe(ending));
  return ending.code();
}

pid_t visible_pid() { return visible != 0 ? visible : ::getpid(); }

Ending run_below(const std::function<int()>& body) {
  pid_t pid = start_below(body);
  return pid < 0 ? Ending{.signalled = false, .number = 1} : watch(pid, watched_signals());
}

}  // namespace hvd::launcher
