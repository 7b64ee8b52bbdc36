// How often each kind of call was made. Programs and benchmarks read it with hvd_standin_counts, found by dlsym.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/visible.h"

namespace standin {

struct Counts {
  uint64_t kernels, nccl_launches, nccl_calls, copies, memsets;         // on streams; a NCCL group is one launch
  uint64_t event_records, event_creates, stream_waits, stream_creates;  //
  uint64_t queries, host_syncs;                                         // of events and streams
  uint64_t device_allocations, device_frees, pinned_allocations, pinned_frees;
  uint64_t context_pushes, module_loads, communicators;
};

STANDIN_VISIBLE void count(uint64_t Counts::*field);

}  // namespace standin

// Fills the first `bytes` bytes of a standin::Counts.
STANDIN_API void hvd_standin_counts(standin::Counts* counts, uint64_t bytes);
STANDIN_API void hvd_standin_reset_counts(void);
// A program that touches pinned memory itself says so, and the access is checked like one on a stream.
STANDIN_API void hvd_standin_host_access(const void* address, uint64_t bytes, int writes);
// Present in the stand-in alone.
STANDIN_API const char* hvd_standin_marker(void);
