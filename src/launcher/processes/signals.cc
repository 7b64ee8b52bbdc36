#include "launcher/processes/signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "launcher/processes/guard.h"

namespace hvd::launcher {
namespace {

UniqueFd watch(const sigset_t& signals) { return UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK)); }

std::optional<int> next(const UniqueFd& fd) {
  signalfd_siginfo info{};
  if (::read(fd.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace

Result<Signals> Signals::create() {
  sigset_t stops, children, dumps;
  ::sigemptyset(&stops);
  for (int signal : kStopSignals) ::sigaddset(&stops, signal);
  ::sigemptyset(&children);
  ::sigaddset(&children, SIGCHLD);
  ::sigemptyset(&dumps);
  ::sigaddset(&dumps, kDumpSignal);
  Signals signals(watch(stops), watch(children), watch(dumps));
  if (!signals.stops_ || !signals.children_ || !signals.dumps_) return system_error("cannot watch", "signals");
  ::signal(SIGPIPE, SIG_IGN);  // write() reports a reader that has gone
  return signals;
}

void Signals::add_to(PollSet& set) {
  set.add(stops_.get(), POLLIN, [] {});
  set.add(children_.get(), POLLIN, [] {});
  set.add(dumps_.get(), POLLIN, [] {});
}

std::vector<int> Signals::take_stop_signals() {
  std::vector<int> taken;
  while (auto signal = next(stops_)) taken.push_back(*signal);
  return taken;
}

bool Signals::take_dump_signal() {
  bool has_come = false;
  while (next(dumps_)) has_come = true;
  return has_come;
}

void Signals::reap(const std::function<void(pid_t pid, int status)>& take) {
  if (!next(children_)) return;
  while (next(children_)) {
  }
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) take(pid, status);
}

}  // namespace hvd::launcher
