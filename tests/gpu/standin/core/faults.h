// Faults on request: HVD_STANDIN_FAULTS is a list, separated by ';', of
//   [RANK:]CALL[@N]=ACTION      at the N-th call of CALL (default: every call) on that rank (default: all ranks)
// CALL is a function of the API, or a point inside: nccl.connect, nccl.kernel, nccl.kernel.end, nccl.launch. N is a
// number, "sizeBYTES" (calls of that size), or "random/M": one of the first M calls, chosen by seed and rank.
// And HVD_STANDIN_FAULT_FOLDER is a folder that a test puts files into while processes run: a file CALL with an ACTION
// in it happens once, at the next call of CALL in any process. It is renamed to CALL.claimed.RANK.PID then. ACTION is a
// code to return, or hang, slow(MS), kill, stop, async(CODE), never, busy, busy(MS), capturing.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "core/visible.h"

namespace standin {

enum class Fault { code, hang, slow, kill, stop, async, never, busy, capturing };
struct FaultAction {
  Fault fault;
  int value = 0;  // code or milliseconds
};

// The fault for this call, if one is due. Carries out hang, slow, kill and stop itself, and returns nothing for slow.
STANDIN_VISIBLE std::optional<FaultAction> fault_at(const char* call, size_t size = 0);

}  // namespace standin
