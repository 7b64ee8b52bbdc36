#include "negotiation/coordinator.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "negotiation/acknowledgements.h"
#include "negotiation/activity.h"
#include "negotiation/messages.h"
#include "negotiation/plan_cache.h"
#include "negotiation/plan_writer.h"
#include "negotiation/readiness.h"
#include "negotiation/stalls.h"

namespace hvd {
namespace {

TimePoint after(TimePoint start, Duration duration) { return duration > kNever - start ? kNever : start + duration; }

}  // namespace

class Coordinator::State {
 public:
  State(int32_t world_size, CoordinatorSettings settings, NegotiationObserver* observer)
      : settings_(std::move(settings)),
        tuning_(settings_.tuning),
        acknowledgements_(world_size),
        readiness_(world_size, acknowledgements_, observer),
        cache_(settings_.cache_capacity, readiness_.table()),
        writer_(world_size, cache_),
        activity_(world_size) {}

  Status receive(Rank rank, ByteView message, TimePoint now);
  bool decide(TimePoint now, Bytes& out);
  TimePoint next_deadline() const;
  void tune(const Tuning& tuning) { next_tuning_ = tuning; }

 private:
  Status take(Rank rank, UpItem& item, TimePoint now);
  Status acknowledge(Rank rank, uint64_t count);
  Status submit_cached(Rank rank, CacheId id, TimePoint now);
  Status submit_full(Rank rank, Request&& request, TimePoint now);

  TimePoint plans_due() const;
  TimePoint timeout_due() const;
  TimePoint stall_check_due() const;
  bool stall_can_shut_down() const {
    return settings_.stall_shutdown > Duration{} && settings_.stall_shutdown >= settings_.stall_warning;
  }
  void fail_overdue(TimePoint now);
  std::string check_stalls(TimePoint now);
  void write_plans(Encoder& out, uint64_t message, TimePoint now);
  StallScene scene(TimePoint now) const { return {readiness_, activity_, settings_.rank_names, now}; }

  CoordinatorSettings settings_;
  Tuning tuning_;
  std::optional<Tuning> next_tuning_;
  Acknowledgements acknowledgements_;
  Readiness readiness_;
  PlanCache cache_;
  PlanWriter writer_;
  Activity activity_;
  std::optional<TimePoint> last_report_;
  std::optional<ShutdownNotice> shutdown_;
  bool stopped_ = false;  // the shutdown notice has been sent
  UpItem item_;           // kept between calls so that reading need not allocate
};

Status Coordinator::State::receive(Rank rank, ByteView message, TimePoint now) {
  if (stopped_) return {};
  Decoder in(message);
  while (!in.at_end()) {
    read_up_item(in, item_);
    if (!in.ok()) break;
    if (Status status = take(rank, item_, now); !status.ok()) return status;
  }
  if (in.ok()) return {};
  return {Code::unknown, fmt::format("rank {} sent bytes that are not a negotiation message", index_of(rank))};
}

Status Coordinator::State::take(Rank rank, UpItem& item, TimePoint now) {
  switch (item.tag) {
    case UpTag::acknowledge: return acknowledge(rank, item.value);
    case UpTag::cached: return submit_cached(rank, item.value, now);
    case UpTag::full: return submit_full(rank, std::move(item.request), now);
    case UpTag::shutdown:
      if (!shutdown_) shutdown_ = {.rank = index_of(rank), .reason = std::string(item.reason)};
      return {};
  }
  return {};
}

Status Coordinator::State::acknowledge(Rank rank, uint64_t count) {
  uint64_t before = acknowledgements_.processed_by(rank);
  if (!acknowledgements_.advance(rank, count)) {
    return {Code::unknown, fmt::format("rank {} acknowledged messages that were never sent", index_of(rank))};
  }
  uint64_t awaited = cache_.awaits();
  if (before < awaited && awaited <= acknowledgements_.processed_by(rank)) {
    cache_.forget_evicted(acknowledgements_.processed_by_all());
  }
  return {};
}

Status Coordinator::State::submit_cached(Rank rank, CacheId id, TimePoint now) {
  CachedPlan* plan = cache_.find(id);
  if (plan == nullptr) {
    return {Code::unknown, fmt::format("rank {} sent the unknown cache id {}", index_of(rank), id)};
  }
  activity_.submitted(rank);
  Device device = plan->devices.empty() ? kHost : plan->devices[static_cast<size_t>(index_of(rank))];
  return readiness_.submit(*plan->entry, {.rank = rank, .request = plan->request, .device = device, .since = now});
}

Status Coordinator::State::submit_full(Rank rank, Request&& request, TimePoint now) {
  activity_.submitted(rank);
  if (request.kind == Kind::add_process_set) request.process_set = kWorldSet;
  auto shared = std::make_shared<const Request>(std::move(request));
  if (shared->kind == Kind::join) return readiness_.join(rank, std::move(shared), now);
  Entry& entry = readiness_.table().find_or_add({gathering_set(*shared), shared->name});
  Device device = shared->device;
  Status status =
      readiness_.submit(entry, {.rank = rank, .request = std::move(shared), .device = device, .since = now});
  if (!status.ok()) readiness_.table().release(entry);
  return status;
}

bool Coordinator::State::decide(TimePoint now, Bytes& out) {
  if (stopped_) return false;
  fail_overdue(now);
  std::string report = check_stalls(now);
  readiness_.end_cycle();
  if (next_tuning_ == tuning_) next_tuning_.reset();
  bool plans = now >= plans_due();
  if (!plans && !next_tuning_ && report.empty() && !shutdown_) return false;

  Encoder encoder(out);
  uint64_t message = acknowledgements_.next_number();
  encoder.varint(message);
  if (next_tuning_) {
    tuning_ = *std::exchange(next_tuning_, std::nullopt);
    write_tuning(encoder, tuning_);
  }
  if (plans) write_plans(encoder, message, now);
  if (!report.empty()) write_stall(encoder, report);
  if (shutdown_) {
    write_shutdown(encoder, *shutdown_);
    stopped_ = true;
  }
  return true;
}

void Coordinator::State::write_plans(Encoder& out, uint64_t message, TimePoint now) {
  const std::vector<Ready>& ready = readiness_.ready();
  FusionSettings fusion{tuning_.fusion_threshold, settings_.disable_group_fusion};
  writer_.write(out, ready, fusion, tuning_.cache_enabled, message);
  for (const Ready& item : ready) {
    if (!item.error.ok()) continue;
    if (item.request->kind == Kind::remove_process_set) activity_.forget(item.request->process_set);
    activity_.finished(gathering_set(*item.request), item.request, now);
  }
  readiness_.finish_ready(message);
}

TimePoint Coordinator::State::plans_due() const {
  if (readiness_.ready().empty()) return kNever;
  if (shutdown_) return TimePoint::min();
  return readiness_.ready_since() + seconds(tuning_.cycle_time_ms / 1e3);
}

TimePoint Coordinator::State::timeout_due() const {
  const Entry* oldest = readiness_.table().oldest();
  if (oldest == nullptr || settings_.collective_timeout <= Duration{}) return kNever;
  return after(oldest->since, settings_.collective_timeout);
}

TimePoint Coordinator::State::stall_check_due() const {
  const Entry* oldest = readiness_.table().oldest();
  if (oldest == nullptr || !settings_.stall_check || settings_.stall_warning <= Duration{}) return kNever;
  TimePoint due = after(std::max(oldest->since, last_report_.value_or(oldest->since)), settings_.stall_warning);
  return stall_can_shut_down() ? std::min(due, after(oldest->since, settings_.stall_shutdown)) : due;
}

TimePoint Coordinator::State::next_deadline() const {
  if (stopped_) return kNever;
  return std::min({plans_due(), timeout_due(), stall_check_due()});
}

void Coordinator::State::fail_overdue(TimePoint now) {
  if (now < timeout_due()) return;
  struct Overdue {
    Entry* entry;
    std::string text;
  };
  std::vector<Overdue> overdue;  // described before the first of them is gone
  for (Entry* entry = readiness_.table().oldest(); entry != nullptr; entry = entry->newer) {
    if (now - entry->since < settings_.collective_timeout) break;
    Stall stall{.entry = entry, .missing = missing_ranks(*entry, readiness_.joined())};
    overdue.push_back({entry, describe_stalls({&stall, 1}, scene(now), "; ")});
  }
  for (Overdue& item : overdue) {
    if (!item.entry->is_open()) continue;  // it waited only for a member of its group that has just failed
    std::string text = fmt::format("timed out after {:.1f} s (HOROVOD_COLLECTIVE_TIMEOUT_SECONDS): {}",
                                   seconds_of(settings_.collective_timeout), item.text);
    readiness_.fail(*item.entry, {Code::unknown, std::move(text)}, now);
  }
}

// The text of the report that is due, or nothing. Asks for the shutdown if the stall has lasted too long.
std::string Coordinator::State::check_stalls(TimePoint now) {
  if (now < stall_check_due()) return {};
  last_report_ = now;
  std::vector<Stall> stalls = find_stalls(readiness_.table(), readiness_.joined(), now, settings_.stall_warning);
  bool fatal = false;
  for (Stall& stall : stalls) {
    stall.fatal = stall_can_shut_down() && now - stall.entry->since >= settings_.stall_shutdown;
    fatal = fatal || stall.fatal;
  }
  if (fatal && !shutdown_) {
    shutdown_ = {.rank = -1,
                 .reason = fmt::format("stalled for more than {:.1f} s, see the report of stalled tensors",
                                       seconds_of(settings_.stall_shutdown))};
  }
  return fmt::format("some ranks have waited for others for more than {:.1f} s:\n{}",
                     seconds_of(settings_.stall_warning), describe_stalls(stalls, scene(now)));
}

Coordinator::Coordinator(int32_t world_size, CoordinatorSettings settings, NegotiationObserver* observer)
    : state_(std::make_unique<State>(world_size, std::move(settings), observer)) {}
Coordinator::~Coordinator() = default;

Status Coordinator::receive(Rank rank, ByteView message, TimePoint now) { return state_->receive(rank, message, now); }
bool Coordinator::decide(TimePoint now, Bytes& out) { return state_->decide(now, out); }
TimePoint Coordinator::next_deadline() const { return state_->next_deadline(); }
void Coordinator::tune(const Tuning& tuning) { state_->tune(tuning); }

}  // namespace hvd
