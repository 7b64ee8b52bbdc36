// Carried allreduces. In a world of two ranks, the data of a small allreduce that is in the plan cache is sent with its
// announcement. It then takes one hop instead of three (announcement up, plan down, data):
//   up      rank 1 sends the id and its data
//   down    rank 0, the root, *offers*: it sends the id and its own data as soon as it announces, without waiting
// A rank that has sent its data in this way and has the data of the other rank reduces the two, in the order of the
// ranks, and is done. There is no plan; the coordinator only updates its tables.
//
// Why both ranks reach the same result. An offer is a promise: from then on, data that rank 1 sends for that name is
// carried, never a plain announcement. The root offers only while rank 1 has not announced the name, or has carried it.
// If rank 1 announces the name in any other way, the plan (or error) that follows the offer in the stream of down
// messages replaces it, and the data that was carried before is discarded. The name is in flight until then, so neither
// side can take an old offer for a new one. Anything that ends an offered name without rank 1 would break the promise.
// Therefore time-outs disable carrying, and only allreduces of the world's process set, which is never removed, are
// carried. Plans need not be in any order relative to this, because data is matched by id.
//
// CarryingRoot is a part of the Coordinator, CarryingRank one of rank 1's Negotiator. messages.h has the wire format.
// Thread rule: one caller at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/wire.h"
#include "model/plan.h"
#include "model/request.h"
#include "negotiation/messages.h"

namespace hvd {

class Acknowledgements;
class KnownPlans;
class LastSeen;
class PlanCache;
class Readiness;
struct Arrival;
struct CachedPlan;
struct KnownPlan;

constexpr int32_t kRanksThatCarry = 2;

// Whether its data may be sent with the announcement. The engine decides up to which size this pays.
inline bool can_be_carried(const Request& request) {
  return request.kind == Kind::allreduce && request.reduce_op != ReduceOp::adasum && request.device == kHost &&
         request.process_set == kWorldSet && request.prescale == 1.0 && request.group.empty();
}

class CarriedListener {
 public:
  virtual ~CarriedListener() = default;
  // Both ranks have carried the request, so it can be finished now. `theirs`: the data of the other rank, valid during
  // the call.
  virtual void on_carried(const Request& request, ByteView theirs) = 0;
};

// The root's state of a name, from its first announcement until it is finished.
struct CarriedAtRoot {
  enum class By : uint8_t {
    none,   // no rank carries it, or it came too late
    root,   // rank 0 does, and has offered it
    other,  // rank 1 does; `theirs` is its data
  };
  By by = By::none;
  Bytes theirs;
};

class CarryingRoot {
 public:
  // The parts of the Coordinator that this reads and changes; they outlive it. `listener` null: nothing is carried.
  CarryingRoot(CarriedListener* listener, Readiness& readiness, PlanCache& cache, LastSeen& activity,
               const Acknowledgements& acknowledgements);

  // Takes an announcement with data. False: the caller must submit it, like one without data.
  bool take(CachedPlan& plan, Arrival& arrival, ByteView data, TimePoint now);
  bool has_offers() const { return !offers_.empty(); }
  // Appends the start of a message to all ranks: its number, and the offers.
  void begin_message(uint64_t number, Bytes& out);
  // To be called when that message has been sent: finishes what the root carried after rank 1.
  void finish_offered(TimePoint now);

 private:
  void offer(const CachedPlan& plan, ByteView data);
  void finish(CachedPlan& plan, ByteView theirs, TimePoint now);

  CarriedListener* const listener_;
  Readiness& readiness_;
  PlanCache& cache_;
  LastSeen& activity_;
  const Acknowledgements& acknowledgements_;
  Bytes offers_;                   // the start of the next message: its number, and the offers
  std::vector<CachedPlan*> both_;  // carried by both ranks, finished once the offers are sent
};

// Rank 1's state of a name in its plan cache.
struct CarriedAtRank {
  bool is_sent = false;     // this rank has carried it
  bool is_offered = false;  // the root has, and this rank not yet
  Bytes offer;

  // A plan for it, or an error, has arrived.
  void reset() { is_sent = is_offered = false; }
};

class CarryingRank {
 public:
  // `listener` null: nothing is carried.
  CarryingRank(CarriedListener* listener, KnownPlans& known) : listener_(listener), known_(known) {}

  void announce(KnownPlan& known, ByteView data, Encoder& out);
  // To be called when that has been given to the transport: finishes what the root had offered before.
  void finish_offered();
  // Reads what follows DownTag::offer.
  void take_offer(Decoder& in);

 private:
  CarriedListener* const listener_;
  KnownPlans& known_;
  std::vector<CacheId> both_;  // carried by both ranks, to be finished
};

}  // namespace hvd
