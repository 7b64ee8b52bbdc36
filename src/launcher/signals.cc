#include "launcher/signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "launcher/guard.h"

namespace hvd {

Result<Signals> Signals::create() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (int signal : kStopSignals) ::sigaddset(&signals, signal);
  ::sigaddset(&signals, SIGCHLD);
  UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return system_error("cannot watch", "signals");
  return Signals(std::move(fd));
}

void Signals::add_to(PollSet& set) {
  set.add(fd_.get(), POLLIN, [] {});
}

void Signals::read() {
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) {
      children_ = true;
    } else {
      stop_signals_.push_back(static_cast<int>(info.ssi_signo));
    }
  }
}

std::vector<int> Signals::take_stop_signals() {
  read();
  return std::exchange(stop_signals_, {});
}

void Signals::reap(const std::function<void(pid_t pid, int status)>& take) {
  read();
  if (!std::exchange(children_, false)) return;
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) take(pid, status);
}

}  // namespace hvd
