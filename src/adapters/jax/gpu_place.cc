#include "adapters/jax/gpu_place.h"

#include <cstddef>
#include <string>

#include "adapters/jax/call.h"

namespace hvd::jax {
namespace {

// Takes over an error of XLA.
void check_answer(const FfiApi& api, void* error, const char* what) {
  if (error == nullptr) return;
  FfiErrorText text{sizeof(FfiErrorText), nullptr, error, nullptr};
  api.error_text(&text);
  std::string message = std::string("XLA does not tell ") + what + ": " + (text.message != nullptr ? text.message : "");
  FfiErrorEnd end{sizeof(FfiErrorEnd), nullptr, error};
  api.destroy_error(&end);
  throw CallError(kFfiAborted, message);
}

}  // namespace

GpuPlace gpu_place_of(const FfiFrame& frame) {
  const FfiApi& api = *frame.api;
  if (api.struct_size < sizeof(FfiApi))
    throw CallError(kFfiAborted,
                    "this jaxlib does not tell custom calls which GPU they run on: use a newer one, or set "
                    "HOROVOD_JAX_FALLBACK=1");
  FfiOrdinalArguments ordinal{sizeof(FfiOrdinalArguments), nullptr, frame.context, HVD_HOST_DEVICE};
  check_answer(api, api.device_ordinal(&ordinal), "the GPU of a custom call");
  FfiStreamArguments stream{sizeof(FfiStreamArguments), nullptr, frame.context, nullptr};
  check_answer(api, api.stream(&stream), "the stream of a custom call");
  return {ordinal.ordinal, stream.stream};
}

}  // namespace hvd::jax
