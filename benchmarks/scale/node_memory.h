// Whose memory it is: every allocation of the program is booked on the kind of node that was working when it was made.
#pragma once

#include <cstddef>

namespace hvd {

enum class Owner { none, rank, leader, root };

// Bytes that are allocated and not freed, without the heap's own overhead.
size_t live_bytes(Owner owner);

// Allocations are booked on this owner from now on.
void charge(Owner owner);

}  // namespace hvd
