// Where XLA runs a custom call on GPUs. Used by the handlers of library.cc.
// Thread rule: any thread, during the call.
#pragma once

#include "adapters/jax/ffi_api.h"
#include "horovod/horovod.h"

namespace hvd::jax {

struct GpuPlace {
  int32_t ordinal = HVD_HOST_DEVICE;
  void* stream = nullptr;  // arrays are valid behind what it has to do so far
};

// CallError if XLA does not tell.
GpuPlace gpu_place_of(const FfiFrame& frame);

}  // namespace hvd::jax
