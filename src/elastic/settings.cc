#include "elastic/settings.h"

#include <fmt/core.h>

namespace hvd::elastic {

Status check(const Settings& settings) {
  if (settings.min_np < 1) return invalid_argument(fmt::format("--min-np must be at least 1, not {}", settings.min_np));
  if (settings.np < settings.min_np) {
    return invalid_argument(fmt::format("-np {} is less than --min-np {}: the job would start below its minimum",
                                        settings.np, settings.min_np));
  }
  if (settings.max_np && *settings.max_np < settings.np) {
    return invalid_argument(
        fmt::format("--max-np {} is less than -np {}: the job could never start", *settings.max_np, settings.np));
  }
  if (settings.reset_limit && *settings.reset_limit < 0)
    return invalid_argument(fmt::format("--reset-limit must not be negative, it is {}", *settings.reset_limit));
  const BackOff& range = settings.back_off;
  if (range.lower <= Duration::zero() || range.upper < range.lower) {
    return invalid_argument(
        fmt::format("--blacklist-cooldown-range {} {}: the first must be more than 0 and at most the second",
                    seconds_of(range.lower), seconds_of(range.upper)));
  }
  return {};
}

}  // namespace hvd::elastic
