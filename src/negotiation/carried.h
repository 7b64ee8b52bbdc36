// Carried allreduces. In a world of two ranks the data of a small allreduce that is in the plan cache rides with its
// announcement, so that it takes one hop instead of three (announcement up, plan down, data):
//   up      rank 1 sends the id and its data
//   down    rank 0, the root, *offers*: sends the id and its own data as soon as it announces it, waiting for nothing
// A rank that has announced it in this way and has the other's data reduces the two, in the order of the ranks, and is
// done. There is no plan; the coordinator takes note and says nothing.
//
// Why both come to the same end. An offer is a promise: from then on, what rank 1 carries of that name is taken as
// carried, never as a plain announcement. The root offers only while the other has not announced the name, or has
// carried it. If rank 1 announces the name in any other way, the plan (or error) that follows the offer in the stream
// of down messages takes its place, and what was carried before is thrown away. The name is in flight until then, so
// that neither side can take an old offer for a new one. What could end a name that was offered without rank 1's word
// would break the promise: time-outs, therefore, switch this off, and only the world's process set, which is never
// removed, is carried. It needs no order among plans because data is matched by id.
// Thread rule: plain functions and an interface.
#pragma once

#include "base/wire.h"
#include "model/plan.h"
#include "model/request.h"

namespace hvd {

constexpr int32_t kRanksThatCarry = 2;

// May its data ride with the announcement? How much is worth it is up to the engine.
inline bool can_be_carried(const Request& request) {
  return request.kind == Kind::allreduce && request.reduce_op != ReduceOp::adasum && request.device == kHost &&
         request.process_set == kWorldSet && request.prescale == 1.0 && request.group.empty();
}

class CarriedListener {
 public:
  virtual ~CarriedListener() = default;
  // Both ranks have carried the request, which can be finished now; these are the data of the other one. They are valid
  // during the call.
  virtual void on_carried(const Request& request, ByteView theirs) = 0;
};

}  // namespace hvd
