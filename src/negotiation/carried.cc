#include "negotiation/carried.h"

#include <utility>

#include "negotiation/acknowledgements.h"
#include "negotiation/known_plans.h"
#include "negotiation/last_seen.h"
#include "negotiation/plan_cache.h"
#include "negotiation/readiness.h"

namespace hvd {

// ---- the root ----

CarryingRoot::CarryingRoot(CarriedListener* listener, Readiness& readiness, PlanCache& cache, LastSeen& activity,
                           const Acknowledgements& acknowledgements)
    : listener_(listener),
      readiness_(readiness),
      cache_(cache),
      activity_(activity),
      acknowledgements_(acknowledgements) {}

bool CarryingRoot::take(CachedPlan& plan, Arrival& arrival, ByteView data, TimePoint now) {
  using By = CarriedAtRoot::By;
  Entry& entry = *plan.entry;
  bool is_first = entry.state == Entry::State::idle;
  bool is_second = entry.state == Entry::State::collecting && entry.arrivals.size() == 1 &&
                   entry.arrivals.front().child != arrival.child;
  if (is_second && entry.carried.by == By::root && entry.cached == &plan) {
    readiness_.settle_carried(entry, std::move(arrival));
    finish(plan, data, now);
    return true;
  }
  bool is_usual = listener_ != nullptr && can_be_carried(*plan.request) && entry.cached == &plan &&
                  entry.failed_in == 0 && entry.owing.empty() && readiness_.joined().empty();
  if (!is_usual) return false;
  if (arrival.rank != Rank{0}) {
    if (!is_first) return false;
    entry.carried.by = By::other;
    entry.carried.theirs.assign(data.begin(), data.end());
    return false;
  }
  if (!is_first && !(is_second && entry.carried.by == By::other)) return false;
  offer(plan, data);
  if (is_first) {
    entry.carried.by = By::root;
    return false;
  }
  readiness_.settle_carried(entry, std::move(arrival));
  both_.push_back(&plan);
  return true;
}

void CarryingRoot::offer(const CachedPlan& plan, ByteView data) {
  Encoder encoder(offers_);
  if (offers_.empty()) encoder.varint(acknowledgements_.last_number() + 1);
  write_offer(encoder, {.id = plan.id, .data = data});
}

void CarryingRoot::begin_message(uint64_t number, Bytes& out) {
  Encoder encoder(out);
  if (offers_.empty()) {
    encoder.varint(number);
  } else if (out.empty()) {
    out.swap(offers_);  // they may be large
  } else {
    encoder.bytes(std::exchange(offers_, {}));
  }
}

void CarryingRoot::finish_offered(TimePoint now) {
  for (CachedPlan* plan : both_) finish(*plan, plan->entry->carried.theirs, now);
  both_.clear();
}

void CarryingRoot::finish(CachedPlan& plan, ByteView theirs, TimePoint now) {
  cache_.use(plan);
  activity_.finished(kWorldSet, plan.request, now);
  readiness_.table().reset(*plan.entry);
  listener_->on_carried(*plan.request, theirs);
}

// ---- the other rank ----

void CarryingRank::announce(KnownPlan& known, ByteView data, Encoder& out) {
  write_carried(out, known.id, data);
  if (known.carried.is_offered) {
    both_.push_back(known.id);
  } else {
    known.carried.is_sent = true;
  }
}

void CarryingRank::finish_offered() {
  for (CacheId id : both_) {
    KnownPlan* known = known_.find(id);
    if (known != nullptr && std::exchange(known->carried.is_offered, false)) {
      listener_->on_carried(*known->request, known->carried.offer);
    }
  }
  both_.clear();
}

void CarryingRank::take_offer(Decoder& in) {
  Offer offer = read_offer(in);
  if (!in.ok() || listener_ == nullptr) return;
  KnownPlan* known = known_.find(offer.id);
  bool is_possible = known != nullptr && can_be_carried(*known->request) && !known->carried.is_offered &&
                     offer.data.size() == bytes_of(*known->request);
  if (!is_possible) {
    in.fail();
  } else if (std::exchange(known->carried.is_sent, false)) {
    listener_->on_carried(*known->request, offer.data);
  } else {
    known->carried.offer.assign(offer.data.begin(), offer.data.end());
    known->carried.is_offered = true;
  }
}

}  // namespace hvd
