#include "negotiation/coordinator.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "negotiation/carried.h"
#include "negotiation/intake.h"
#include "negotiation/last_seen.h"
#include "negotiation/messages.h"
#include "negotiation/plan_cache.h"
#include "negotiation/plan_writer.h"
#include "negotiation/readiness.h"
#include "negotiation/stalls.h"

namespace hvd {
class Coordinator::State final : public IntakeListener {
 public:
  State(Subtrees tree, CoordinatorSettings settings, NegotiationObserver* observer)
      : settings_(std::move(settings)),
        tuning_(settings_.tuning),
        readiness_(std::move(tree), observer),
        intake_(readiness_.gathering().tree().count_ranks(), readiness_.gathering()),
        cache_(settings_.cache_capacity, readiness_.table()),
        writer_(readiness_.gathering().tree(), cache_),
        activity_(readiness_.gathering().tree()),
        carrying_(settings_.collective_timeout > Duration{} ? nullptr : settings_.carried, readiness_, cache_,
                  activity_, intake_.acknowledgements()) {}

  Status receive(Rank rank, ByteView message, TimePoint now);
  bool decide(TimePoint now, Bytes& out);
  void finish_offered(TimePoint now) { carrying_.finish_offered(now); }
  TimePoint next_deadline() const;
  void tune(const Tuning& tuning) { next_tuning_ = tuning; }

 private:
  Status on_cached(Arrival&& arrival, uint64_t position, TimePoint now) override;
  Status on_full(Arrival&& arrival, uint64_t position, TimePoint now) override;
  Status on_join(std::span<const int32_t> ranks, const AgreedRequest& request, TimePoint now) override;
  void on_shutdown(Rank rank, std::string_view reason, const Origin& origin) override;
  void on_acknowledged(uint64_t before, uint64_t now) override;
  void note(const Arrival& arrival, int32_t process_set);

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
  Readiness readiness_;
  Intake intake_;
  PlanCache cache_;
  PlanWriter writer_;
  LastSeen activity_;
  CarryingRoot carrying_;
  std::optional<TimePoint> last_report_;
  std::optional<ShutdownNotice> shutdown_;
  bool stopped_ = false;  // the shutdown notice has been sent
};

Status Coordinator::State::receive(Rank rank, ByteView message, TimePoint now) {
  if (stopped_) return {};
  Status status = intake_.receive(rank, message, now, *this);
  readiness_.finish_message(now);
  return status;
}

Status Coordinator::State::on_cached(Arrival&& arrival, uint64_t position, TimePoint now) {
  CachedPlan* plan = cache_.find(arrival.id);
  if (plan == nullptr) {
    return {Code::unknown, fmt::format("rank {} sent the unknown cache id {}", index_of(arrival.rank), arrival.id)};
  }
  arrival.request = plan->request;
  arrival.devices = plan->devices;
  note(arrival, plan->entry->key.process_set);
  ByteView data = std::exchange(arrival.data, {});
  if (!data.empty()) {
    if (data.size() != bytes_of(*plan->request)) return broken(arrival.rank, "it carried what is not the tensor");
    if (carrying_.take(*plan, arrival, data, now)) return {};
  }
  return readiness_.submit(*plan->entry, std::move(arrival), position, now);
}

Status Coordinator::State::on_full(Arrival&& arrival, uint64_t position, TimePoint now) {
  const Request& request = *arrival.request;
  int32_t set = gathering_set(request);
  note(arrival, set);
  Entry& entry = readiness_.table().find_or_add({set, request.name});
  Status status = readiness_.submit(entry, std::move(arrival), position, now);
  if (!status.ok()) readiness_.table().release(entry);
  return status;
}

Status Coordinator::State::on_join(std::span<const int32_t> ranks, const AgreedRequest& request, TimePoint now) {
  for (int32_t rank : ranks) {
    activity_.submitted(Rank{rank});
    if (Status status = readiness_.join(Rank{rank}, request, now); !status.ok()) return status;
  }
  return {};
}

void Coordinator::State::on_shutdown(Rank rank, std::string_view reason, const Origin& origin) {
  if (!shutdown_) shutdown_ = {.rank = index_of(rank), .reason = std::string(reason), .origin = origin};
}

void Coordinator::State::on_acknowledged(uint64_t before, uint64_t now) {
  auto covers = [&](uint64_t message) { return before < message && message <= now; };
  if (!covers(cache_.awaits()) && !covers(readiness_.table().awaits())) return;
  uint64_t processed_by_all = intake_.acknowledgements().processed_by_all();
  cache_.forget_evicted(processed_by_all);
  readiness_.table().forget_failures(processed_by_all);
}

void Coordinator::State::note(const Arrival& arrival, int32_t process_set) {
  if (activity_.have_all_submitted(arrival.child)) return;
  // In a whole subtree, some ranks have already joined, and all others submit now.
  bool is_of_world = process_set == kWorldSet && arrival.request->kind != Kind::form_process_set;
  bool is_all = is_of_world || readiness_.gathering().tree().is_single(arrival.child);
  if (arrival.some == nullptr && is_all) return activity_.submitted_by_all(arrival.child);
  for (int32_t rank : readiness_.gathering().ranks_of(arrival, process_set, false)) {
    activity_.submitted(Rank{rank});
  }
}

// ---- decisions ----

bool Coordinator::State::decide(TimePoint now, Bytes& out) {
  if (stopped_) return false;
  fail_overdue(now);
  std::string report = check_stalls(now);
  readiness_.end_cycle();
  if (next_tuning_ == tuning_) next_tuning_.reset();
  bool plans = now >= plans_due();
  if (!plans && !next_tuning_ && report.empty() && !shutdown_ && !carrying_.has_offers()) return false;

  uint64_t message = intake_.acknowledgements().next_number();
  carrying_.begin_message(message, out);
  Encoder encoder(out);
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
    if (removes_set(item.request->kind)) activity_.forget(item.request->process_set);
    if (item.request->kind == Kind::form_process_set || item.request->kind == Kind::leave_process_set) continue;
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
    Origin origin;
  };
  std::vector<Overdue> overdue;  // described before the first one is removed
  for (Entry* entry = readiness_.table().oldest(); entry != nullptr; entry = entry->newer) {
    if (now - entry->since < settings_.collective_timeout) break;
    Stall stall{.entry = entry, .missing = missing_ranks(*entry, readiness_.joined())};
    overdue.push_back({entry, describe_stalls({&stall, 1}, scene(now), "; "), late_rank({&stall, 1})});
  }
  for (Overdue& item : overdue) {
    if (!item.entry->is_open()) continue;  // it waited only for a member of its group that has just failed
    std::string text = fmt::format("timed out after {:.1f} s (HOROVOD_COLLECTIVE_TIMEOUT_SECONDS): {}",
                                   seconds_of(settings_.collective_timeout), item.text);
    readiness_.fail(*item.entry, {Code::unknown, std::move(text), std::move(item.origin)}, now);
  }
}

// The text of the report that is due, or nothing. Requests the shutdown if the stall has lasted too long.
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
                                       seconds_of(settings_.stall_shutdown)),
                 .origin = late_rank(stalls)};
  }
  return fmt::format("some ranks have waited for others for more than {:.1f} s:\n{}",
                     seconds_of(settings_.stall_warning), describe_stalls(stalls, scene(now)));
}

Coordinator::Coordinator(int32_t world_size, CoordinatorSettings settings, NegotiationObserver* observer)
    : state_(std::make_unique<State>(Subtrees::of_single_ranks(world_size), std::move(settings), observer)) {}
Coordinator::Coordinator(const std::vector<std::vector<int32_t>>& children, CoordinatorSettings settings,
                         NegotiationObserver* observer)
    : state_(std::make_unique<State>(Subtrees(children), std::move(settings), observer)) {}
Coordinator::~Coordinator() = default;

Status Coordinator::receive(Rank rank, ByteView message, TimePoint now) { return state_->receive(rank, message, now); }
bool Coordinator::decide(TimePoint now, Bytes& out) { return state_->decide(now, out); }
void Coordinator::finish_offered(TimePoint now) { state_->finish_offered(now); }
TimePoint Coordinator::next_deadline() const { return state_->next_deadline(); }
void Coordinator::tune(const Tuning& tuning) { state_->tune(tuning); }

}  // namespace hvd
