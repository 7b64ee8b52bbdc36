// Finds out from a trace where the time goes. Nothing here reads files or clocks.
// Vocabulary: an operation *gathers* from its first submission to its last, is *late* because of the rank that submits
// last, then *queues* until it starts, and *moves* bytes until its end. A rank *waits* while a thread of the user waits
// in Horovod; what it waits for decides what that time is called (RankTime). Thread rule: pure function.
#pragma once

#include "report/findings.h"
#include "report/trace.h"

namespace hvd::report {

Findings analyse(Trace trace);

}  // namespace hvd::report
