// Checks whether the requests of all ranks for one name match. Pure. Thread rule: plain functions.
#pragma once

#include <span>

#include "base/status.h"
#include "model/process_sets.h"
#include "negotiation/request_table.h"

namespace hvd {

// Compares the requests, sorted by rank; there is at least one. The first difference is the error: data type, kind,
// shape, factors, reduce op, root, placement, process set, group.
Status find_mismatch(std::span<const Arrival> arrivals);

// Errors in a request that is the same on all ranks: scalars that cannot be split, a reduce op that reducescatter does
// not support, a root outside the process set, process sets that cannot be added or removed.
Status find_violation(const Request& request, const ProcessSets& sets, int32_t world_size);

}  // namespace hvd
