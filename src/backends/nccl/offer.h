// What each rank could use for GPU tensors, and what all ranks do together: NCCL, or copies through host memory. The
// ranks exchange offers at init; the decision is a pure function of them, so it is the same on all ranks.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "backends/nccl/libraries.h"

namespace hvd {

struct GpuOffer {
  static constexpr size_t kReason = 232;
  int32_t is_usable = 0;
  int32_t version = 0;  // of NCCL; 0: not known before it is loaded
  int32_t is_hip = 0;
  int32_t is_required = 0;  // HOROVOD_GPU_OPERATIONS=nccl
  int32_t is_refused = 0;   // HOROVOD_GPU_OPERATIONS=host
  int32_t wants_torus = 0;  // HOROVOD_HIERARCHICAL_ALLREDUCE=1 or HOROVOD_TORUS_ALLREDUCE=1
  std::array<char, kReason> reason{};
};
static_assert(sizeof(GpuOffer) == 256);

GpuOffer gpu_offer(const LibrarySearch& found, const std::string& operations, bool wants_torus = false);

struct GpuDecision {
  bool use_nccl = false;
  bool use_torus = false;    // every rank wants it
  std::string reason;        // why not, with the rank
  bool is_surprise = false;  // some ranks could have used it, or one insists on it
  bool is_error = false;     // a rank insists on it
};
GpuDecision decide_on_nccl(std::span<const GpuOffer> offers);

}  // namespace hvd
