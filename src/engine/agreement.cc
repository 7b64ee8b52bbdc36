#include "engine/agreement.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"

namespace hvd {
namespace {

constexpr Duration kLookAfterLeader = std::chrono::milliseconds(250);  // interval while the leader owes an answer
constexpr Duration kAskLeader = std::chrono::seconds(1);               // interval while it owes none that we know of
constexpr Duration kRetryFullRing = std::chrono::milliseconds(1);

bool speaks_for_several(const std::vector<std::vector<int32_t>>& below) {
  return below.size() > 1 || (below.size() == 1 && below.front().size() > 1);
}

}  // namespace

Agreement::Agreement(const World& world, const Config& config, const CoordinatorSettings& settings,
                     Transport& transport, NegotiationObserver* observer, Node node)
    : world_(world),
      config_(config),
      transport_(transport),
      negotiator_(world.size, world.rank == 0 ? nullptr : settings.carried),
      links_(node.links) {
  if (world.rank == 0) {
    coordinator_ = links_ ? std::make_unique<Coordinator>(node.below, settings, observer)
                          : std::make_unique<Coordinator>(world.size, settings, observer);
  } else if (links_ && speaks_for_several(node.below)) {
    AggregatorSettings limits{.hold = hold_time(settings)};
    aggregator_ = std::make_unique<Aggregator>(world.size, node.below, limits);
  }
}

bool Agreement::has_incoming() {
  if (transport_.messages().has_incoming()) return true;
  if (!links_) return false;
  links_->progress(Clock::now());
  return links_->has_messages();
}

void Agreement::progress(std::vector<Decision>& decisions) {
  transport_.messages().flush();
  if (transport_.is_root()) {
    progress_leader(decisions);
  } else {
    progress_member(decisions);
  }
}

// ---- leaders ----

void Agreement::progress_leader(std::vector<Decision>& decisions) {
  TimePoint now = Clock::now();
  if (!negotiator_.outgoing().empty()) {
    gather(world_.rank, negotiator_.outgoing(), now);
    negotiator_.clear_outgoing();
    negotiator_.finish_offered();
  }
  ByteView message;
  while (links_ && links_->receive_down(message)) spread(message, now, decisions);
  for (int32_t peer = 1; peer < transport_.size(); peer++) {
    while (transport_.messages().receive_up(peer, message)) gather(transport_.world_rank(peer), message, now);
  }
  if (links_) links_->receive_up([&](int32_t rank, ByteView from_below) { gather(rank, from_below, now); });

  outgoing_.clear();
  if (coordinator_ && (std::exchange(heard_, false) || now >= coordinator_->next_deadline())) {
    if (coordinator_->decide(now, outgoing_)) spread(outgoing_, now, decisions);
    coordinator_->finish_offered(now);
  } else if (aggregator_ && aggregator_->flush(now, outgoing_)) {
    links_->send_up(outgoing_);
  }
}

// Handles a message from a rank, or from a leader below.
void Agreement::gather(int32_t rank, ByteView message, TimePoint now) {
  if (!coordinator_ && !aggregator_) return links_->send_up(message);
  heard_ = true;
  Status status =
      coordinator_ ? coordinator_->receive(Rank{rank}, message, now) : aggregator_->receive(Rank{rank}, message, now);
  if (status.ok()) return;
  transport_.abort({Code::unknown,
                    fmt::format("{} sent an invalid message: {}", transport_.rank_name(rank), status.message()),
                    transport_.origin_of(OriginKind::internal, rank)});
}

// Handles a message from the root.
void Agreement::spread(ByteView message, TimePoint now, std::vector<Decision>& decisions) {
  if (aggregator_) {
    if (Status status = aggregator_->follow(message, now); !status.ok()) {
      return transport_.abort(sent_nonsense(status));
    }
  }
  transport_.messages().send(message);
  if (links_) links_->send_down(message);
  hear(message, decisions);
}

// ---- all ranks ----

void Agreement::progress_member(std::vector<Decision>& decisions) {
  if (!negotiator_.outgoing().empty()) {
    transport_.messages().send(negotiator_.outgoing());
    negotiator_.clear_outgoing();
    negotiator_.finish_offered();
  }
  ByteView message;
  while (transport_.messages().receive_down(message)) hear(message, decisions);
}

void Agreement::hear(ByteView message, std::vector<Decision>& decisions) {
  unread_since_ = kNever;  // a leader that sends also reads
  Status status = negotiator_.receive(message, decisions);
  if (status.ok()) return;
  transport_.abort(sent_nonsense(status));
}

Status Agreement::sent_nonsense(const Status& status) const {
  return {Code::unknown,
          fmt::format("{} sent an invalid coordinator message: {}", transport_.rank_name(0), status.message()),
          transport_.origin_of(OriginKind::internal, 0)};
}

TimePoint Agreement::next_deadline(bool awaits) const {
  TimePoint next = transport_.messages().has_unsent() ? Clock::now() + kRetryFullRing : kNever;
  if (links_) next = std::min(next, links_->next_deadline());
  if (aggregator_) next = std::min(next, aggregator_->next_deadline());
  if (coordinator_) return std::min(next, coordinator_->next_deadline());
  if (transport_.messages().is_unread()) return std::min(next, Clock::now() + kLookAfterLeader);
  return awaits && asks_leader() ? std::min(next, Clock::now() + kAskLeader) : next;
}

void Agreement::watch_leader(bool awaits) {
  TimePoint now = Clock::now();
  if (!transport_.messages().is_unread()) {
    unread_since_ = kNever;
    if (awaits && asks_leader() && now >= next_question_ && !transport_.failed() &&
        !transport_.peers().expects_departures()) {
      next_question_ = now + kAskLeader;
      transport_.messages().send({});
    }
    return;
  }
  if (unread_since_ == kNever) {
    unread_since_ = now;
    next_warning_ = now + seconds(config_.stall_warning_time);
  }
  auto text = [&] {
    return fmt::format("{} has not read the requests of {} for {:.1f} s; is it stopped?",
                       transport_.rank_name(transport_.world_rank(0)), transport_.rank_name(world_.rank),
                       seconds_of(now - unread_since_));
  };
  if (config_.stall_check && now >= next_warning_) {
    log_warning("{}", text());
    next_warning_ = now + seconds(config_.stall_warning_time);
  }
  if (config_.collective_timeout > 0 && now >= unread_since_ + seconds(config_.collective_timeout)) {
    transport_.abort({Code::unknown, text() + " (HOROVOD_COLLECTIVE_TIMEOUT_SECONDS)",
                      transport_.origin_of(OriginKind::deadline, transport_.world_rank(0))});
  }
}

void Agreement::leave(TimePoint until) {
  if (links_) links_->leave(until);
}

}  // namespace hvd
