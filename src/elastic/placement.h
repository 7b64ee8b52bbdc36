// Which rank each member of a new generation gets: survivors keep the low ranks in their order. Pure function.
//
// The ranks of a host are consecutive. Hosts with survivors come first, in the order of their lowest old rank, then the
// others in the order of the ledger; in a host, survivors come first, then new workers in the order of their ids. So
// rank 0 is a survivor if there is one, and survivors keep their relative order.
#pragma once

#include <span>
#include <vector>

#include "elastic/events.h"
#include "elastic/worker.h"

namespace hvd::elastic {

// `order` is the order of the hosts; a host that is not in it comes last. Fills everything except the generation.
AssignGeneration place(std::span<const Worker* const> members, const std::vector<HostSlots>& order);

}  // namespace hvd::elastic
