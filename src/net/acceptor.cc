#include "net/acceptor.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "net/congestion.h"
#include "net/greeting.h"

namespace hvd {
namespace {

constexpr int kMostAtOnce = 64;  // accepted before pending handshakes are processed again
constexpr Duration kShortOfDescriptors = std::chrono::milliseconds(100);

}  // namespace

Acceptor::Acceptor(Poller poller, Listener listener, Credentials credentials, Welcome welcome, AcceptorLimits limits)
    : poller_(std::move(poller)),
      listener_(std::move(listener)),
      credentials_(std::move(credentials)),
      welcome_(std::move(welcome)),
      limits_(std::move(limits)),
      next_(listener_.sockets.size()) {}  // smaller tags are the listening sockets

Result<std::unique_ptr<Acceptor>> Acceptor::create(Listener listener, Credentials credentials, Welcome welcome,
                                                   AcceptorLimits limits) {
  auto poller = Poller::create();
  if (!poller.ok()) return poller.status();
  for (size_t i = 0; i < listener.sockets.size(); i++) {
    set_congestion(listener.sockets[i].get(), limits.options.congestion);  // accepted sockets inherit it
    if (Status status = poller->add(listener.sockets[i].get(), i); !status.ok()) return status;
  }
  return std::unique_ptr<Acceptor>(new Acceptor(std::move(*poller), std::move(listener), std::move(credentials),
                                                std::move(welcome), std::move(limits)));
}

void Acceptor::poll(TimePoint now, std::vector<Accepted>& accepted) {
  if (accept_again_ <= now) {
    accept_again_ = kNever;
    for (const UniqueFd& socket : listener_.sockets) accept_from(socket, now, accepted);
  }
  for (uint64_t tag : poller_.wait()) {
    if (tag < listener_.sockets.size()) {
      accept_from(listener_.sockets[tag], now, accepted);
    } else if (auto found = pending_.find(tag); found != pending_.end()) {
      advance(found, now, accepted);
    }
  }
  while (!pending_.empty() && pending_.begin()->second.until <= now) {
    drop(pending_.begin(), fmt::format("silent for {:.1f} s", seconds_of(limits_.patience)), now);
  }
  set_alarm();
}

void Acceptor::accept_from(const UniqueFd& socket, TimePoint now, std::vector<Accepted>& accepted) {
  for (int i = 0; i < kMostAtOnce; i++) {
    RawAddress raw;
    UniqueFd connection(::accept4(socket.get(), raw.get(), &raw.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection) {
      auto from = address_of(raw.get());
      greet(std::move(connection), from.ok() ? *from : SocketAddress{}, now, accepted);
      continue;
    }
    if (errno == EAGAIN) return;
    if (errno == ECONNABORTED || errno == EINTR) continue;
    log_warning("cannot accept a connection on port {}: {}; trying again", listener_.port, std::strerror(errno));
    accept_again_ = now + kShortOfDescriptors;
    return;
  }
  accept_again_ = now;
}

void Acceptor::greet(UniqueFd socket, const SocketAddress& from, TimePoint now, std::vector<Accepted>& accepted) {
  if (Status status = set_options(socket, limits_.options); !status.ok()) return report(from, status.message(), now);
  auto nonce = random_nonce();
  auto stream = make_stream(std::move(socket), credentials_, false);
  if (!nonce.ok()) return report(from, nonce.status().message(), now);
  if (!stream.ok()) return report(from, stream.status().message(), now);
  if (Status status = poller_.add((*stream)->descriptor(), next_); !status.ok()) {
    return report(from, status.message(), now);
  }
  if (pending_.size() >= limits_.half_open) drop(pending_.begin(), "too many connections at once", now);
  auto [place, is_new] =
      pending_.emplace(next_++, Pending{.stream = std::move(*stream),
                                        .handshake = Handshake::called(credentials_.key, welcome_, *nonce),
                                        .from = from,
                                        .until = now + limits_.patience});
  advance(place, now, accepted);
}

void Acceptor::advance(std::map<uint64_t, Pending>::iterator place, TimePoint now, std::vector<Accepted>& accepted) {
  Pending& pending = place->second;
  if (Status status = carry(pending.handshake, *pending.stream); !status.ok()) {
    return drop(place, status.message(), now);
  }
  if (!pending.handshake.outgoing().empty()) return;
  if (pending.handshake.state() == Handshake::State::failed) {
    return drop(place, pending.handshake.status().message(), now);
  }
  if (pending.handshake.state() != Handshake::State::done) return;
  poller_.remove(pending.stream->descriptor());
  accepted.push_back(
      {.stream = std::move(pending.stream), .identity = pending.handshake.identity(), .from = pending.from});
  pending_.erase(place);
}

void Acceptor::drop(std::map<uint64_t, Pending>::iterator place, std::string_view reason, TimePoint now) {
  report(place->second.from, reason, now);
  pending_.erase(place);
}

void Acceptor::report(const SocketAddress& from, std::string_view reason, TimePoint now) {
  dropped_++;
  if (now < report_again_) {
    unreported_++;
    return;
  }
  report_again_ = now + limits_.log_pause;
  std::string others = unreported_ == 0 ? "" : fmt::format(" (and {} others since the last such message)", unreported_);
  unreported_ = 0;
  log_warning("port {} dropped a connection from {}: {}{}", listener_.port, to_text(from), reason, others);
}

void Acceptor::set_alarm() {
  TimePoint at = accept_again_;
  if (!pending_.empty()) at = std::min(at, pending_.begin()->second.until);
  poller_.set_alarm(at);
}

}  // namespace hvd
