// The user's settings of a job, and the time limits that follow from them. Thread rule: plain values.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/status.h"

namespace hvd::elastic {

// How long a host gets no new worker after a failure: lower * 2^k plus a random part of up to `lower`, between the two
// limits; k is the number of earlier failures (see host_ledger.h).
struct BackOff {
  Duration lower = seconds(0.25), upper = seconds(60);
};

struct Settings {
  // A static job: np workers whose ranks are known before they start; the first failure ends it. Only np and
  // cause_patience are used.
  bool is_static = false;

  int np = 1;                      // required by the first generation
  int min_np = 1;                  // required by every later one
  std::optional<int> max_np;       // none: all slots are used
  std::optional<int> reset_limit;  // generations after the first; none: unlimited

  Duration elastic_timeout = seconds(600);  // for slots, for workers to return, and for new workers to report
  Duration start_timeout = seconds(30);  // afterwards the first generation starts with min_np, if np slots are listed
  BackOff back_off;                      // --blacklist-cooldown-range

  Duration regroup_grace =
      seconds(10);  // from the first worker that asks again until the others continue; late workers may join later
  Duration accused_grace = seconds(2);   // the same for a worker that others reported as silent
  Duration gather_grace = seconds(5);    // the first new worker waits for others that are starting, see gathers_until()
  Duration leave_hold = seconds(60);     // no new worker on a host whose worker was told to leave
  Duration leave_grace = seconds(30);    // from being told to leave until being stopped
  Duration stop_grace = seconds(30);     // from being stopped until the driver continues without a report of its end
  Duration finish_grace = seconds(600);  // from the first success until the others are stopped
  Duration cause_patience = seconds(5);  // of a static job: from its first failure until the cause must have ended

  uint64_t seed = 0;        // of the random part of back-off
  double epoch_offset = 0;  // wall clock minus monotonic clock, for the timestamps of notices
};

// Checks min <= np <= max and similar; the message names the option.
Status check(const Settings& settings);

}  // namespace hvd::elastic
