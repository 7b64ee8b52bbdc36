#include "net/blocking.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/bell.h"

namespace hvd {
namespace {

constexpr size_t kLargestStep = 1 << 20;                       // most bytes moved while the lock is held
constexpr Duration kPatience = std::chrono::seconds(20);       // for one handshake: interpreters start slowly
constexpr Duration kAttemptTime = std::chrono::seconds(5);     // for one address
constexpr Duration kProbeInterval = std::chrono::seconds(20);  // a host that disappears is noticed after a few minutes

// A peer may not read for a while, for example while its interpreter is busy.
SocketOptions patient_options() { return {.user_timeout = SocketOptions::kPatient, .keep_alive = kProbeInterval}; }

}  // namespace

template <class Move>
Result<size_t> BlockingStream::move(const Move& move, short events, TimePoint until) {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      auto moved = move();
      if (!moved.ok() || *moved > 0) return moved;
    }
    if (Clock::now() >= until) return Status(Code::timed_out, "the peer sent nothing in time");
    pollfd one{.fd = stream_->descriptor(), .events = events, .revents = 0};
    if (::poll(&one, 1, milliseconds_until(until)) < 0 && errno == EINTR) return size_t{0};
  }
}

Result<size_t> BlockingStream::send(ByteView from) {
  ByteView step = from.first(std::min(from.size(), kLargestStep));
  return move([&] { return stream_->write(step); }, POLLOUT, kNever);
}

Result<size_t> BlockingStream::receive(std::span<std::byte> into, TimePoint until) {
  std::span<std::byte> step = into.first(std::min(into.size(), kLargestStep));
  return move([&] { return stream_->read(step); }, POLLIN, until);
}

void BlockingStream::close() { ::shutdown(stream_->descriptor(), SHUT_RDWR); }

Result<std::string> BlockingStream::local_address() const {
  RawAddress raw;
  if (::getsockname(stream_->descriptor(), raw.get(), &raw.length) != 0)
    return system_error("cannot read the address of", "a connection");
  auto address = address_of(raw.get());
  if (!address.ok()) return address.status();
  return to_text(address->ip);
}

Result<std::unique_ptr<BlockingAcceptor>> BlockingAcceptor::create(const std::vector<IpAddress>& addresses,
                                                                   const Key& key) {
  auto credentials = encrypted_credentials(key);
  if (!credentials.ok()) return credentials.status();
  auto listener = addresses.empty() ? listen_on(std::vector<std::string>{}) : listen_on(addresses);
  if (!listener.ok()) return listener.status();
  auto acceptor = Acceptor::create(std::move(*listener), *credentials, {.purposes = {Purpose::function}},
                                   {.patience = kPatience, .options = patient_options()});
  if (!acceptor.ok()) return acceptor.status();
  auto closed = create_bell();
  if (!closed.ok()) return closed.status();
  return std::unique_ptr<BlockingAcceptor>(new BlockingAcceptor(std::move(*acceptor), std::move(*closed)));
}

Result<std::unique_ptr<BlockingStream>> BlockingAcceptor::accept() {
  for (;;) {
    std::array<pollfd, 2> both{pollfd{.fd = acceptor_->descriptor(), .events = POLLIN, .revents = 0},
                               pollfd{.fd = closed_.get(), .events = POLLIN, .revents = 0}};
    ::poll(both.data(), both.size(), accepted_.empty() ? -1 : 0);
    if (both[1].revents != 0) return Status(Code::aborted, "the listener was closed");
    acceptor_->poll(Clock::now(), accepted_);
    if (accepted_.empty()) continue;
    auto stream = std::make_unique<BlockingStream>(std::move(accepted_.front().stream));
    accepted_.erase(accepted_.begin());
    return stream;
  }
}

void BlockingAcceptor::close() { ring(closed_); }

Result<std::unique_ptr<BlockingStream>> connect_blocking(std::string name,
                                                         const std::vector<std::pair<std::string, uint16_t>>& addresses,
                                                         const Key& key, TimePoint until) {
  auto credentials = encrypted_credentials(key);
  if (!credentials.ok()) return credentials.status();
  Target target{.name = std::move(name), .identity = {.purpose = Purpose::function}};
  std::string unknown;
  for (const auto& [host, port] : addresses) {
    auto found = resolve(host, port);
    if (found.ok()) {
      target.endpoints.insert(target.endpoints.end(), found->begin(), found->end());
    } else {
      unknown += fmt::format("; {}", found.status().message());
    }
  }
  ConnectorSettings settings{.patience = kAttemptTime, .peer_listens = true, .options = patient_options()};
  auto stream = connect(std::move(target), std::move(*credentials), until, std::move(settings));
  if (!stream.ok()) return Status(stream.status().code(), std::string(stream.status().message()) + unknown);
  return std::make_unique<BlockingStream>(std::move(*stream));
}

}  // namespace hvd
