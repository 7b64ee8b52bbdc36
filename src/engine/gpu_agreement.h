// At init the ranks agree how to transfer GPU tensors: with NCCL if every rank can use it, else through host memory,
// which the frameworks' adapters do. Thread rule: called once, by the thread in hvd_init.
#pragma once

#include "backends/nccl/libraries.h"
#include "base/status.h"
#include "model/config.h"

namespace hvd {

class Engine;

LibraryPlaces library_places(const Config& config);
// Not ok: this process has lost its GPU, and must not become part of a world again.
Status check_gpus();
// Collective. Not ok: a rank requires NCCL (HOROVOD_GPU_OPERATIONS=nccl), and another cannot use it.
Status agree_on_gpus(Engine& engine, const Config& config);

}  // namespace hvd
