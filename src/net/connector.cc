#include "net/connector.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "base/joined.h"
#include "net/greeting.h"

namespace hvd {
namespace {

std::string reason_of(int error) {
  std::string text = std::strerror(error);
  text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

// Whether connecting has finished, with success or an error.
bool is_decided(const UniqueFd& socket) {
  pollfd one{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  return ::poll(&one, 1, 0) > 0;
}

}  // namespace

Connector::Connector(Poller poller, Target target, Credentials credentials, TimePoint now, TimePoint deadline,
                     ConnectorSettings settings)
    : poller_(std::move(poller)),
      target_(std::move(target)),
      credentials_(std::move(credentials)),
      began_(now),
      deadline_(deadline),
      settings_(std::move(settings)) {
  for (const Endpoint& endpoint : target_.endpoints) {
    Attempt& attempt = attempts_.emplace_back();
    attempt.endpoint = endpoint;
    attempt.next = now;
    attempt.pause = settings_.first_pause;
  }
}

Result<std::unique_ptr<Connector>> Connector::create(Target target, Credentials credentials, TimePoint now,
                                                     TimePoint deadline, ConnectorSettings settings) {
  if (target.endpoints.empty()) {
    return Status(Code::unknown,
                  fmt::format("cannot connect to {}: it has no address that can be tried from here", target.name));
  }
  auto poller = Poller::create();
  if (!poller.ok()) return poller.status();
  std::unique_ptr<Connector> connector(
      new Connector(std::move(*poller), std::move(target), std::move(credentials), now, deadline, std::move(settings)));
  connector->poller_.set_alarm(now);  // the first poll() starts connecting
  return connector;
}

std::optional<Result<std::unique_ptr<Stream>>> Connector::poll(TimePoint now) {
  for (uint64_t tag : poller_.wait()) advance(tag, now);
  expire(now);
  choose(now);
  if (chosen_ && attempts_[*chosen_].handshake->state() == Handshake::State::done) {
    std::unique_ptr<Stream> stream = std::move(attempts_[*chosen_].stream);
    poller_.remove(stream->descriptor());
    attempts_.clear();
    return stream;
  }
  if (is_hopeless() || now >= deadline_) return failure(now);
  start_due(now);
  set_alarm();
  return std::nullopt;
}

// An attempt may start when its own pause is over and the previous one has had some time.
void Connector::start_due(TimePoint now) {
  for (size_t i = 0; i < attempts_.size(); i++) {
    const Attempt& attempt = attempts_[i];
    if (attempt.is_over || attempt.is_under_way() || attempt.next > now) continue;
    bool alone = std::none_of(attempts_.begin(), attempts_.end(), [](const Attempt& a) { return a.is_under_way(); });
    if (!alone && now < next_start_) break;
    next_start_ = now + settings_.stagger;
    start(i, now);
  }
}

void Connector::start(size_t index, TimePoint now) {
  Attempt& attempt = attempts_[index];
  attempt.began = now;
  attempt.tries++;
  auto socket = start_connect(attempt.endpoint.address, settings_.options);
  if (!socket.ok()) return fail(attempt, now, std::string(socket.status().message()), false);
  attempt.socket = std::move(*socket);
  if (Status status = poller_.add(attempt.socket.get(), index); !status.ok()) {
    fail(attempt, now, std::string(status.message()), false);
  }
}

void Connector::advance(size_t index, TimePoint now) {
  Attempt& attempt = attempts_[index];
  if (attempt.socket) {
    if (!is_decided(attempt.socket)) return;
    if (int error = connect_error(attempt.socket); error != 0)
      return fail(attempt, now, reason_of(error), settings_.peer_listens && error == ECONNREFUSED);
    if (Status status = greet(attempt, index); !status.ok()) {
      return fail(attempt, now, std::string(status.message()), false);
    }
  }
  if (attempt.stream == nullptr) return;
  Status status = carry(*attempt.handshake, *attempt.stream);
  if (attempt.handshake->state() == Handshake::State::failed) {
    return fail(attempt, now, std::string(attempt.handshake->status().message()), attempt.handshake->is_refused());
  }
  if (status.ok()) return;
  bool is_tls = status.message().starts_with("TLS: ");
  fail(
      attempt, now,
      fmt::format("during the handshake: {}{}", status.message(), is_tls ? " (it has another key or certificate)" : ""),
      settings_.peer_listens && is_tls);
}

Status Connector::greet(Attempt& attempt, size_t index) {
  auto nonce = random_nonce();
  if (!nonce.ok()) return nonce.status();
  poller_.remove(attempt.socket.get());
  auto stream = make_stream(std::exchange(attempt.socket, UniqueFd()), credentials_, true);
  if (!stream.ok()) return stream.status();
  attempt.stream = std::move(*stream);
  attempt.handshake = Handshake::caller(credentials_.key, target_.identity, *nonce);
  return poller_.add(attempt.stream->descriptor(), index);
}

void Connector::fail(Attempt& attempt, TimePoint now, std::string reason, bool is_over) {
  attempt.socket = UniqueFd();
  attempt.stream = nullptr;
  attempt.handshake.reset();
  attempt.result = std::move(reason);
  attempt.is_over = is_over;
  attempt.next = now + attempt.pause;
  attempt.pause = std::min(attempt.pause * 2, settings_.longest_pause);
  if (chosen_ && &attempts_[*chosen_] == &attempt) chosen_.reset();
}

void Connector::expire(TimePoint now) {
  for (size_t i = 0; i < attempts_.size(); i++) {
    Attempt& attempt = attempts_[i];
    if (!attempt.is_under_way() || chosen_ == i || now < attempt.began + settings_.patience) continue;
    fail(attempt, now,
         fmt::format("{} in {:.1f} s", attempt.socket ? "no answer" : "connected, but no handshake",
                     seconds_of(now - attempt.began)),
         false);
  }
}

// Chooses the preferred attempt of those that are ready; called again if that one breaks afterwards.
void Connector::choose(TimePoint now) {
  for (size_t i = 0; i < attempts_.size() && !chosen_; i++) {
    Attempt& attempt = attempts_[i];
    if (!attempt.handshake || attempt.handshake->state() != Handshake::State::proven) continue;
    chosen_ = i;
    attempt.handshake->prove();
    advance(i, now);
  }
}

bool Connector::is_hopeless() const {
  return std::all_of(attempts_.begin(), attempts_.end(), [](const Attempt& attempt) { return attempt.is_over; });
}

Status Connector::failure(TimePoint now) const {
  return {is_hopeless() ? Code::precondition : Code::unknown, describe(now)};
}

std::string Connector::describe(TimePoint now) const {
  std::vector<std::string> results;
  for (const Attempt& attempt : attempts_) {
    std::string result = attempt.result;
    if (attempt.is_under_way()) {
      result = fmt::format("{} in {:.1f} s", attempt.socket ? "no answer" : "connected, but no handshake",
                           seconds_of(now - attempt.began));
    }
    if (attempt.tries > 1) result += fmt::format(" ({} tries)", attempt.tries);
    results.push_back(fmt::format("{}: {}", to_text(attempt.endpoint), result));
  }
  return fmt::format("cannot connect to {} in {:.1f} s: {}", target_.name, seconds_of(now - began_),
                     joined(results, "; "));
}

void Connector::set_alarm() {
  TimePoint at = deadline_;
  bool alone = std::none_of(attempts_.begin(), attempts_.end(), [](const Attempt& a) { return a.is_under_way(); });
  for (size_t i = 0; i < attempts_.size(); i++) {
    const Attempt& attempt = attempts_[i];
    if (attempt.is_over || chosen_ == i) continue;
    if (attempt.is_under_way()) {
      at = std::min(at, attempt.began + settings_.patience);
    } else {
      at = std::min(at, alone ? attempt.next : std::max(attempt.next, next_start_));
    }
  }
  poller_.set_alarm(at);
}

Result<std::unique_ptr<Stream>> connect(Target target, Credentials credentials, TimePoint deadline,
                                        ConnectorSettings settings) {
  auto connector =
      Connector::create(std::move(target), std::move(credentials), Clock::now(), deadline, std::move(settings));
  if (!connector.ok()) return connector.status();
  for (;;) {
    if (auto outcome = (*connector)->poll(Clock::now())) return std::move(*outcome);
    pollfd one{.fd = (*connector)->descriptor(), .events = POLLIN, .revents = 0};
    ::poll(&one, 1, milliseconds_until(deadline));
  }
}

}  // namespace hvd
