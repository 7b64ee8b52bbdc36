// Which rank each member of a new generation gets: survivors keep the low ranks in their order. Pure function.
//
// The ranks of a host follow each other. Hosts with survivors come first, in the order of their lowest old rank, then
// the others in the order of the ledger; in a host its survivors come first, then newcomers in the order of their ids.
// So rank 0 is a survivor if there is any, and no survivor overtakes another.
#pragma once

#include <span>
#include <vector>

#include "elastic/events.h"
#include "elastic/worker.h"

namespace hvd::elastic {

// `order` is that of the hosts; one that is not in it comes behind those that are. Fills everything but the generation.
AssignGeneration place(std::span<const Worker* const> members, const std::vector<HostSlots>& order);

}  // namespace hvd::elastic
