#include "engine/agreement.h"

#include <fmt/core.h>

#include <algorithm>
#include <cassert>

#include "base/log.h"

namespace hvd {
namespace {

constexpr Duration kLookAfterRoot = std::chrono::milliseconds(250);  // while it owes an answer
constexpr Duration kRetryFullRing = std::chrono::milliseconds(1);

}  // namespace

Agreement::Agreement(const World& world, const Config& config, const CoordinatorSettings& settings,
                     Transport& transport, NegotiationObserver* observer)
    : world_(world), config_(config), transport_(transport), negotiator_(world.size) {
  if (world.rank == 0) coordinator_ = std::make_unique<Coordinator>(world.size, settings, observer);
}

void Agreement::progress(std::vector<Decision>& decisions) {
  transport_.flush();
  if (coordinator_) {
    progress_root(decisions);
  } else {
    progress_member(decisions);
  }
}

void Agreement::progress_root(std::vector<Decision>& decisions) {
  bool heard = false;
  TimePoint now = Clock::now();
  auto receive = [&](int32_t rank, ByteView message) {
    heard = true;
    Status status = coordinator_->receive(Rank{rank}, message, now);
    if (!status.ok()) {
      transport_.abort(
          {Code::unknown, fmt::format("{} sent what no rank sends: {}", transport_.rank_name(rank), status.message())});
    }
  };
  if (!negotiator_.outgoing().empty()) {
    receive(0, negotiator_.outgoing());
    negotiator_.clear_outgoing();
  }
  for (int32_t peer = 1; peer < transport_.size(); peer++) {
    ByteView message;
    while (transport_.receive_up(peer, message)) receive(peer, message);
  }
  if (heard || now >= coordinator_->next_deadline()) decide(now, decisions);
}

void Agreement::decide(TimePoint now, std::vector<Decision>& decisions) {
  outgoing_.clear();
  if (!coordinator_->decide(now, outgoing_)) return;
  transport_.send(outgoing_);
  Status status = negotiator_.receive(outgoing_, decisions);
  assert(status.ok());
}

void Agreement::progress_member(std::vector<Decision>& decisions) {
  if (!negotiator_.outgoing().empty()) {
    transport_.send(negotiator_.outgoing());
    negotiator_.clear_outgoing();
  }
  ByteView message;
  while (transport_.receive_down(message)) {
    Status status = negotiator_.receive(message, decisions);
    if (!status.ok()) {
      transport_.abort({Code::unknown, fmt::format("{} sent what no coordinator sends: {}", transport_.rank_name(0),
                                                   status.message())});
    }
  }
}

TimePoint Agreement::next_deadline() const {
  TimePoint retry = transport_.has_unsent() ? Clock::now() + kRetryFullRing : kNever;
  if (coordinator_) return std::min(retry, coordinator_->next_deadline());
  if (!transport_.is_unread()) return retry;
  return std::min(retry, Clock::now() + kLookAfterRoot);
}

void Agreement::watch_root() {
  if (!transport_.is_unread()) {
    unread_since_ = kNever;
    return;
  }
  TimePoint now = Clock::now();
  if (unread_since_ == kNever) {
    unread_since_ = now;
    next_root_warning_ = now + seconds(config_.stall_warning_time);
  }
  auto text = [&] {
    return fmt::format("{} has not looked at the requests of {} for {:.1f} s; is it stopped?",
                       transport_.rank_name(transport_.world_rank(0)), transport_.rank_name(world_.rank),
                       seconds_of(now - unread_since_));
  };
  if (config_.stall_check && now >= next_root_warning_) {
    log_warning("{}", text());
    next_root_warning_ = now + seconds(config_.stall_warning_time);
  }
  if (config_.collective_timeout > 0 && now >= unread_since_ + seconds(config_.collective_timeout)) {
    transport_.abort({Code::unknown, text() + " (HOROVOD_COLLECTIVE_TIMEOUT_SECONDS)"});
  }
}

}  // namespace hvd
