// A bell wakes a sleeping process: an eventfd that every rank of the host can signal. Thread rule: any thread.
#pragma once

#include "base/fd.h"
#include "base/status.h"

namespace hvd {

Result<UniqueFd> create_bell();
void ring(const UniqueFd& bell);  // never blocks
void silence(const UniqueFd& bell);

}  // namespace hvd
