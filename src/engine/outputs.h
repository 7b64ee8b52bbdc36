// Prepares outputs before a backend runs: sizes that only the other ranks know, and memory.
// Thread rule: the thread that drives.
#pragma once

#include <span>

#include "backends/backend.h"
#include "collectives/collectives.h"
#include "engine/task.h"

namespace hvd {

// allgather: ranks exchange their rows of each tensor. alltoall: ranks exchange the rows that they send to each rank.
Status exchange_rows(Collectives& collectives, Kind kind, std::span<Operation* const> operations);

// For an operation whose output has a shape but no memory yet; the caller's allocator takes precedence. `device`: for
// outputs that are not in host memory.
Status allocate_output(Operation& operation, DeviceBackend* device = nullptr);

}  // namespace hvd
