// Whom the failure of a world names as silent: a process that was stopped, or a host that is cut off, which does not
// end by itself. Failures travel between ranks as text, so it is read from there. Thread rule: pure function.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"

namespace hvd {

std::optional<int32_t> silent_rank(const Status& failure);

}  // namespace hvd
