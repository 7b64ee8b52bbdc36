#include "launcher/guard.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "launcher/workers/process.h"

namespace hvd {
namespace {

// Kills whatever the launcher left to us, which is nothing when it ended by itself.
void kill_leftovers() {
  for (auto left = descendants(); !left.empty(); left = descendants()) {
    for (pid_t pid : left) ::kill(pid, SIGKILL);
    ::waitpid(-1, nullptr, 0);
  }
}

int watch(pid_t launcher, const char* name, const sigset_t& signals) {
  while (true) {
    int signal = 0;
    ::sigwait(&signals, &signal);
    if (signal != SIGCHLD) {
      ::kill(launcher, signal);
      continue;
    }
    int status = 0;
    if (::waitpid(launcher, &status, WNOHANG) != launcher) continue;
    kill_leftovers();
    Ending ending = ending_of(status);
    if (ending.signalled) fmt::print(stderr, "horovodrun: the {} was {}\n", name, describe(ending));
    return ending.code();
  }
}

}  // namespace

int run_guarded(const char* name, const std::function<int()>& launcher) {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (int signal : kStopSignals) ::sigaddset(&signals, signal);
  ::sigaddset(&signals, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);  // inherited by the launcher
  adopt_orphans();
  pid_t self = ::getpid();
  pid_t pid = ::fork();
  if (pid < 0) {
    std::perror("horovodrun: cannot fork");
    return 1;
  }
  if (pid > 0) return watch(pid, name, signals);
  ::setsid();  // Ctrl-C reaches the visible process alone, which passes it on once
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != self) ::_exit(1);
  return launcher();
}

}  // namespace hvd
