// The last thing a job does: it hands on what it has still to show. Thread rule: one thread.
#pragma once

#include "launcher/output/screen.h"
#include "launcher/signals.h"
#include "launcher/workers/poll_set.h"

namespace hvd {

// The readers of our output take the time they need, but not after the user asked us to stop.
void flush_at_end(Screen& screen, Signals& signals, PollSet& set, bool was_stopped);

}  // namespace hvd
