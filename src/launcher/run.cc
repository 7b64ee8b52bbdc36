#include "launcher/run.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <cstdio>

#include "base/fd.h"
#include "launcher/environment.h"
#include "launcher/guard.h"
#include "launcher/job.h"
#include "launcher/process.h"

namespace hvd {
namespace {

constexpr const char* kAddress = "127.0.0.1";

struct BoundPort {
  UniqueFd socket;
  uint16_t port = 0;
};

// Kept bound while the job runs, the port is ours alone: it names the job on this machine.
Result<BoundPort> bind_port() {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return system_error("cannot open", "a socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, kAddress, &address.sin_addr);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.get(), generic, size) != 0 || ::getsockname(socket.get(), generic, &size) != 0)
    return system_error("cannot bind a port of", kAddress);
  return BoundPort{std::move(socket), ntohs(address.sin_port)};
}

Result<UniqueFd> open_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (int signal : kStopSignals) ::sigaddset(&signals, signal);
  ::sigaddset(&signals, SIGCHLD);
  UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return system_error("cannot watch", "signals");
  return fd;
}

int failed(const Status& status) {
  fmt::print(stderr, "horovodrun: {}\n", status.message());
  return 1;
}

}  // namespace

int run_job(const Options& options, const std::vector<Slot>& slots) {
  ::signal(SIGPIPE, SIG_IGN);  // a reader that goes away is seen by write()
  adopt_orphans();
  auto port = bind_port();
  if (!port.ok()) return failed(port.status());
  auto key = random_key();
  if (!key.ok()) return failed(key.status());
  auto signals = open_signals();
  if (!signals.ok()) return failed(signals.status());
  Meeting meeting{.address = kAddress, .port = port->port, .key = std::move(*key)};
  return Job(options, slots, std::move(meeting), std::move(*signals)).run();
}

}  // namespace hvd
