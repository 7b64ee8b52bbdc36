#include "net/dialer.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/joined.h"
#include "base/log.h"
#include "net/congestion.h"

namespace hvd {
namespace {

constexpr int32_t kStripeBits = 8;  // of Identity::stripe; the number of stripes is in the bits above
constexpr int32_t kMostStripes = (1 << kStripeBits) - 1;
// The connecting side's error, which lists the addresses, should come first.
constexpr Duration kPatienceForCaller = std::chrono::seconds(1);
// For one attempt once the world is running. The kernel of a stopped peer accepts connections; their handshakes come
// later.
constexpr Duration kPatienceOfWorld = std::chrono::seconds(30);

int32_t stripe_of(size_t index, size_t count) {
  return static_cast<int32_t>(count) << kStripeBits | static_cast<int32_t>(index);
}

Result<SocketAddress> peer_address(int descriptor) {
  RawAddress raw;
  if (::getpeername(descriptor, raw.get(), &raw.length) != 0) return system_error("cannot name a peer", "");
  return address_of(raw.get());
}

bool is_complete(const std::vector<std::unique_ptr<Stream>>& stripes) {
  return !stripes.empty() &&
         std::none_of(stripes.begin(), stripes.end(), [](const auto& stream) { return stream == nullptr; });
}

}  // namespace

Dialer::Dialer(Poller poller, std::unique_ptr<Acceptor> acceptor, Credentials credentials, DialerSettings settings)
    : poller_(std::move(poller)),
      acceptor_(std::move(acceptor)),
      credentials_(std::move(credentials)),
      settings_(std::move(settings)) {}

Result<std::unique_ptr<Dialer>> Dialer::create(std::unique_ptr<Acceptor> acceptor, std::vector<Accepted> early,
                                               const std::vector<HostRecord>& hosts, Credentials credentials,
                                               DialerSettings settings) {
  auto poller = Poller::create();
  if (!poller.ok()) return poller.status();
  if (Status status = poller->add(acceptor->descriptor(), 0); !status.ok()) return status;
  auto interfaces = read_interfaces();
  if (!interfaces.ok()) return interfaces.status();
  std::unique_ptr<Dialer> dialer(
      new Dialer(std::move(*poller), std::move(acceptor), std::move(credentials), std::move(settings)));
  dialer->interfaces_ = std::move(*interfaces);
  for (const HostRecord& host : hosts) {
    for (size_t local = 0; local < host.ranks.size(); local++) {
      dialer->peers_[host.ranks[local].rank] = {rank_name(host, local), endpoints_of(host, local)};
    }
  }
  dialer->take_in(std::move(early));
  return dialer;
}

void Dialer::open(int32_t peer, TimePoint now) {
  Duration patience = peer > settings_.rank ? Duration{} : kPatienceForCaller;
  openings_[peer] = {.began = now,
                     .deadline = after(now, settings_.timeout) == kNever ? kNever : now + settings_.timeout + patience,
                     .warn_at = after(now, warn_every_),
                     .connectors = {},
                     .stripes = {}};
  set_alarm();
}

void Dialer::be_patient(Duration warn_every) {
  settings_.timeout = Duration::max();
  warn_every_ = warn_every;
}

void Dialer::take_in(std::vector<Accepted> accepted) {
  for (Accepted& one : accepted) {
    const Identity& who = one.identity;
    size_t count = static_cast<size_t>(who.stripe >> kStripeBits);
    size_t index = static_cast<size_t>(who.stripe) & kMostStripes;
    if (who.purpose != Purpose::data || who.stripe < 0 || index >= count || !peers_.contains(who.from)) continue;
    auto& stripes = arrived_[who.from];
    stripes.resize(count);
    stripes[index] = std::move(one.stream);
  }
}

Status Dialer::call(int32_t peer, Opening& opening, size_t stripe, std::vector<Endpoint> endpoints, TimePoint now) {
  Target target{.name = peers_.at(peer).name,
                .endpoints = std::move(endpoints),
                .identity = {.purpose = Purpose::data,
                             .generation = settings_.generation,
                             .from = settings_.rank,
                             .to = peer,
                             .stripe = stripe_of(stripe, opening.stripes.size())}};
  ConnectorSettings settings;
  settings.options = settings_.options;
  if (opening.deadline == kNever) settings.patience = kPatienceOfWorld;
  auto connector = Connector::create(std::move(target), credentials_, now, opening.deadline, std::move(settings));
  if (!connector.ok()) return connector.status();
  if (Status status = poller_.add((*connector)->descriptor(), 0); !status.ok()) return status;
  opening.connectors[stripe] = std::move(*connector);
  return {};
}

Status Dialer::start_calling(int32_t peer, Opening& opening, TimePoint now) {
  size_t count = static_cast<size_t>(std::clamp(settings_.streams, 1, kMostStripes));
  opening.stripes.resize(count);
  opening.connectors.resize(count);
  return call(peer, opening, 0, order_for_connecting(peers_.at(peer).endpoints, interfaces_), now);
}

Status Dialer::advance(int32_t peer, Opening& opening, TimePoint now) {
  if (opening.connectors.empty()) {
    if (Status status = start_calling(peer, opening, now); !status.ok()) return status;
  }
  for (size_t stripe = 0; stripe < opening.connectors.size(); stripe++) {
    if (opening.connectors[stripe] == nullptr) continue;
    auto result = opening.connectors[stripe]->poll(now);
    if (!result) continue;
    if (!result->ok()) return result->status();
    opening.connectors[stripe].reset();
    opening.stripes[stripe] = std::move(result->value());
    if (stripe > 0) continue;
    // The other stripes use the address that worked.
    auto address = peer_address(opening.stripes[0]->descriptor());
    if (!address.ok()) return address.status();
    for (size_t other = 1; other < opening.stripes.size(); other++) {
      if (Status status = call(peer, opening, other, {{*address, ""}}, now); !status.ok()) return status;
    }
  }
  return {};
}

Status Dialer::check_called(int32_t peer, Opening& opening, TimePoint now) {
  auto found = arrived_.find(peer);
  if (found != arrived_.end() && is_complete(found->second)) {
    opening.stripes = std::move(found->second);
    arrived_.erase(found);
    return {};
  }
  if (now < opening.deadline) return {};
  return {Code::unknown, not_called(peer, opening, now) + " (HOROVOD_START_TIMEOUT)"};
}

std::string Dialer::not_called(int32_t peer, const Opening& opening, TimePoint now) const {
  std::vector<std::string> texts;
  for (const Endpoint& endpoint : acceptor_->endpoints()) texts.push_back(to_text(endpoint));
  return fmt::format("{} did not connect to {} within {:.1f} s; that rank listens at {}", peers_.at(peer).name,
                     peers_.at(settings_.rank).name, seconds_of(now - opening.began), joined(texts, ", "));
}

void Dialer::warn_late(int32_t peer, Opening& opening, TimePoint now) {
  if (now < opening.warn_at) return;
  opening.warn_at = after(now, warn_every_);
  std::string reason = not_called(peer, opening, now);
  for (const auto& connector : opening.connectors) {
    if (connector != nullptr) reason = connector->describe(now);
  }
  log_warning("{}; still waiting", reason);
}

std::optional<Dialer::Opened> Dialer::poll(TimePoint now) {
  poller_.wait();
  std::vector<Accepted> accepted;
  acceptor_->poll(now, accepted);
  take_in(std::move(accepted));
  std::optional<Opened> opened;
  for (auto& [peer, opening] : openings_) {
    Status status = peer > settings_.rank ? advance(peer, opening, now) : check_called(peer, opening, now);
    if (!status.ok()) opened.emplace(Opened{peer, status});
    if (status.ok() && is_complete(opening.stripes)) {
      for (auto& stream : opening.stripes) settle_congestion(stream->descriptor(), settings_.congestion);
      opened.emplace(Opened{peer, std::move(opening.stripes)});
    }
    if (opened) break;
    warn_late(peer, opening, now);
  }
  if (opened) openings_.erase(opened->peer);
  set_alarm();
  return opened;
}

// Work requested since the last poll(), and results not returned yet, are due at once.
void Dialer::set_alarm() {
  TimePoint next = kNever;
  for (const auto& [peer, opening] : openings_) {
    bool is_new = peer > settings_.rank && opening.connectors.empty();
    auto found = arrived_.find(peer);
    bool is_there = is_complete(opening.stripes) || (found != arrived_.end() && is_complete(found->second));
    next = std::min(next, is_new || is_there ? TimePoint{} : std::min(opening.deadline, opening.warn_at));
  }
  poller_.set_alarm(next);
}

void Dialer::list_descriptors(std::vector<int>& into) const {
  into.push_back(poller_.descriptor());
  into.push_back(acceptor_->descriptor());
}

}  // namespace hvd
