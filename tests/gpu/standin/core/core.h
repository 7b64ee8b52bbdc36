// The state of the whole pretended machine, behind one mutex. Stream workers run their work without it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "core/clock.h"
#include "core/report.h"
#include "core/visible.h"

namespace standin {

// What touched memory: a call of the host or a piece of work on a stream, for the happens-before check and reports.
struct Site {
  std::string what;
  Stack stack;
  Timeline timeline = 0;
  uint64_t step = 0;
  VectorClock clock;  // of everything that happened before it, itself included
};
using SitePointer = std::shared_ptr<const Site>;
STANDIN_VISIBLE std::string to_text(const Site& site);

struct Core {
  std::mutex mutex;  // guards streams, events, contexts, allocations, histories and clocks
  std::condition_variable changed;
};
STANDIN_VISIBLE Core& core();
bool core_started();
void start_core();

STANDIN_VISIBLE Timeline new_timeline();
// The clock of the calling host thread; core().mutex is held.
STANDIN_VISIBLE VectorClock& host_clock();
// A step of the host: the site of a call that touches memory itself, or that launches.
STANDIN_VISIBLE SitePointer host_site(std::string what, const Stack& stack);

// The sticky error of this process, or 0.
STANDIN_VISIBLE int sticky_error();
STANDIN_VISIBLE void set_sticky_error(int code);

// True in a child that was forked after cuInit.
bool forked();

// At exit: lets streams finish what was launched, so that its accesses are checked, too.
void finish_queued_work();

}  // namespace standin
