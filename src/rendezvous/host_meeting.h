// The ranks of one host meet: rank 0 listens on a Unix socket without a file (abstract name), the others come, and each
// is handed the shared memory and everybody's bell. The sockets stay open: their end tells that a process died.
// Only processes of the same user are let in, which the kernel vouches for (SO_PEERCRED).
// Blocks until all have come or the time is up; the error names who is missing. Thread rule: any thread.
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "model/host_group.h"
#include "model/world.h"

namespace hvd {

// `memory` is what rank 0 brings along for all; the others pass none.
Result<HostGroup> meet_on_host(const World& world, UniqueFd memory, Duration timeout);

}  // namespace hvd
