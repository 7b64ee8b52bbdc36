// What the user says about a job, and the waits that follow from it. Thread rule: plain values.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/status.h"

namespace hvd::elastic {

// How long a host gets no new worker after one failed there: lower * 2^k plus up to `lower` by chance, between the two;
// k counts the failures before this one (see host_ledger.h).
struct BackOff {
  Duration lower = seconds(0.25), upper = seconds(60);
};

struct Settings {
  // A static job: np workers whose ranks are known before they start, and the first that fails ends it. Only np and
  // cause_patience count then.
  bool is_static = false;

  int np = 1;                      // what the first generation needs
  int min_np = 1;                  // what every later one needs
  std::optional<int> max_np;       // none: every slot is used
  std::optional<int> reset_limit;  // generations after the first; none: any number

  Duration elastic_timeout = seconds(600);  // for slots, for workers to come back, and for newcomers to come
  Duration start_timeout = seconds(30);     // after it the first generation starts with min_np, if np slots are listed
  BackOff back_off;                         // --blacklist-cooldown-range

  Duration regroup_grace =
      seconds(10);  // from the first that asks again until the others go on; late workers may join later
  Duration accused_grace = seconds(2);   // the same for a worker that others found silent
  Duration gather_grace = seconds(5);    // the first newcomer waits for others that are starting, see gathers_until()
  Duration leave_hold = seconds(60);     // no new worker on a host whose worker was told to go
  Duration leave_grace = seconds(30);    // from being told to leave until being stopped
  Duration stop_grace = seconds(30);     // from being stopped until the driver goes on without the news of its end
  Duration finish_grace = seconds(600);  // from the first success until the others are stopped
  Duration cause_patience = seconds(5);  // of a static job: from its first failure until the cause must have ended

  uint64_t seed = 0;        // of the chance in back-off
  double epoch_offset = 0;  // wall clock minus monotonic clock, for the timestamps of notices
};

// min <= np <= max and the like; the message names the option.
Status check(const Settings& settings);

}  // namespace hvd::elastic
