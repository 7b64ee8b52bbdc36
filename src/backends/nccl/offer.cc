#include "backends/nccl/offer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace hvd {

GpuOffer gpu_offer(const LibrarySearch& found, const std::string& operations, bool wants_torus) {
  GpuOffer offer{.is_usable = found.is_usable() ? 1 : 0,
                 .version = found.nccl_version,
                 .is_hip = found.is_hip ? 1 : 0,
                 .is_required = operations == "nccl" ? 1 : 0,
                 .is_refused = operations == "host" ? 1 : 0,
                 .wants_torus = wants_torus ? 1 : 0};
  std::string reason = offer.is_refused != 0 ? "HOROVOD_GPU_OPERATIONS=host" : found.reason;
  std::memcpy(offer.reason.data(), reason.data(), std::min(reason.size(), offer.reason.size() - 1));
  return offer;
}

GpuDecision decide_on_nccl(std::span<const GpuOffer> offers) {
  GpuDecision decision{.use_nccl = true, .use_torus = true};
  const GpuOffer* known = nullptr;  // the first rank that knows its version
  size_t known_rank = 0;
  bool one_can = false;
  for (size_t rank = 0; rank < offers.size(); rank++) {
    const GpuOffer& offer = offers[rank];
    decision.is_error |= offer.is_required != 0;
    decision.use_torus &= offer.wants_torus != 0;
    bool can = offer.is_usable != 0 && offer.is_refused == 0;
    one_can |= can;
    if (!can) {
      if (decision.use_nccl) decision.reason = fmt::format("rank {}: {}", rank, offer.reason.data());
      decision.use_nccl = false;
      continue;
    }
    if (offer.version == 0) continue;
    if (known == nullptr) {
      known = &offer;
      known_rank = rank;
    } else if (decision.use_nccl &&
               (nccl_release(offer.version) != nccl_release(known->version) || offer.is_hip != known->is_hip)) {
      decision.use_nccl = false;
      decision.reason = fmt::format("rank {} has {} {}, rank {} has {} {}", known_rank,
                                    known->is_hip != 0 ? "RCCL" : "NCCL", nccl_version_text(known->version), rank,
                                    offer.is_hip != 0 ? "RCCL" : "NCCL", nccl_version_text(offer.version));
    }
  }
  decision.is_error = decision.is_error && !decision.use_nccl;
  decision.is_surprise = !decision.use_nccl && one_can;
  return decision;
}

}  // namespace hvd
