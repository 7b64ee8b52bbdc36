// Do the requests of all ranks for one name go together? Pure. Thread rule: plain functions.
#pragma once

#include <span>

#include "base/status.h"
#include "model/process_sets.h"
#include "negotiation/request_table.h"

namespace hvd {

// Compares the requests, sorted by rank. The first difference found is the error: data type, kind, shape, factors,
// reduce op, root, placement, process set, group. Not empty.
Status find_mismatch(std::span<const Arrival> arrivals);

// What can be wrong with a request although all ranks sent the same: scalars that cannot be split, a reduce op that
// reducescatter does not know, a root outside the process set, process sets that cannot be added or removed.
Status find_violation(const Request& request, const ProcessSets& sets, int32_t world_size);

}  // namespace hvd
