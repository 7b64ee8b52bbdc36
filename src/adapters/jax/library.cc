// libhorovod_jax.so: the handlers of the custom calls that `horovod.jax` compiles into XLA's programs. XLA:CPU runs
// them one at a time, in the thread that runs the program; they block until their collective is done. XLA:GPU calls
// them in the order of the program while it launches; they return when the collective is launched, too, and XLA's
// stream waits for it. Errors are returned to XLA, which raises them in Python. Their text begins with kMark, so that
// horovod/jax/errors.py recognises them.
#include <cstring>
#include <exception>
#include <string>

#include "adapters/jax/behind.h"
#include "adapters/jax/call.h"
#include "adapters/jax/collective.h"
#include "adapters/jax/ffi_api.h"
#include "adapters/jax/gpu_place.h"
#include "adapters/jax/started.h"

namespace {

using namespace hvd::jax;  // NOLINT(google-build-using-namespace)

constexpr const char* kMark = "horovod.jax: ";

void* make_error(const FfiFrame& frame, FfiErrorCode code, const std::string& text) {
  std::string marked = kMark + text;
  FfiErrorArguments arguments{sizeof(FfiErrorArguments), nullptr, marked.c_str(), code};
  return frame.api->create_error(&arguments);
}

// Whether this call only queries metadata; if so, returns it.
bool answers_metadata(const FfiFrame& frame) {
  for (FfiExtension* each = frame.extensions; each != nullptr; each = each->next) {
    if (each->type != kMetadataExtension) continue;
    FfiMetadata& metadata = *reinterpret_cast<FfiMetadataExtension*>(each)->metadata;
    metadata.version = frame.api->version;
    metadata.traits = 0;
    return true;
  }
  return false;
}

template <typename Work>
void* handle(FfiFrame* frame, const Work& work) {
  if (answers_metadata(*frame)) return nullptr;
  if (frame->struct_size < sizeof(FfiFrame))
    return make_error(*frame, kFfiAborted, "this jaxlib uses an interface older than 0.1: set HOROVOD_JAX_FALLBACK=1");
  if (frame->stage != kFfiExecute) return nullptr;
  try {
    work(*frame);
    return nullptr;
  } catch (const CallError& error) {
    return make_error(*frame, error.code, error.what());
  } catch (const std::exception& error) {
    return make_error(*frame, kFfiAborted, error.what());
  }
}

Collective collective_of(const FfiFrame& frame, const GpuPlace& place) {
  std::vector<hvd_tensor> inputs, outputs;
  for (const FfiBuffer* buffer : buffers_of(frame.inputs)) inputs.push_back(tensor_of(*buffer, place));
  for (const FfiBuffer* buffer : buffers_of(frame.outputs)) outputs.push_back(tensor_of(*buffer, place));
  if (inputs.size() != outputs.size())
    throw CallError(kFfiInvalidArgument, "a collective must have as many results as arrays");
  Call call = read_call(frame, inputs.size());
  return Collective(std::move(call), std::move(inputs), std::move(outputs));
}

void run_collective(const FfiFrame& frame) {
  Collective collective = collective_of(frame, {});
  collective.start(true);
  collective.finish();
}

void run_on_gpu(const FfiFrame& frame) {
  GpuPlace place = gpu_place_of(frame);
  Collective collective = collective_of(frame, place);
  collective.start(true);
  collective.finish_on_stream(place.stream);
}

// Returns its input if all of the frame has the expected layout.
void run_self_test(const FfiFrame& frame) {
  Call call = read_call(frame, static_cast<size_t>(frame.inputs.count));
  bool is_right = call.kind == HVD_BROADCAST && call.root_rank == 7 && call.prescale_factor == 0.5 &&
                  call.verb == "test" && call.names == std::vector<std::string>{"a", "bc"} &&
                  call.splits == std::vector<int32_t>{3, 45};
  if (!is_right) throw CallError(kFfiInvalidArgument, "attributes differ from the compiled ones");
  for (int64_t i = 0; i < frame.inputs.count; i++) {
    const FfiBuffer& from = *frame.inputs.buffers[i];
    const FfiBuffer& to = *frame.outputs.buffers[i];
    if (tensor_of(from).dtype != tensor_of(to).dtype || size_in_bytes(from) != size_in_bytes(to))
      throw CallError(kFfiInvalidArgument, "arrays differ from the compiled ones");
    std::memcpy(to.data, from.data, size_in_bytes(from));
  }
}

}  // namespace

#define HVD_JAX_EXPORT extern "C" __attribute__((visibility("default")))

HVD_JAX_EXPORT void* hvd_jax_run(FfiFrame* frame) { return handle(frame, run_collective); }
HVD_JAX_EXPORT void* hvd_jax_run_on_gpu(FfiFrame* frame) { return handle(frame, run_on_gpu); }
HVD_JAX_EXPORT void* hvd_jax_start(FfiFrame* frame) { return handle(frame, start_collective); }
HVD_JAX_EXPORT void* hvd_jax_done(FfiFrame* frame) { return handle(frame, finish_collective); }
HVD_JAX_EXPORT void* hvd_jax_self_test(FfiFrame* frame) { return handle(frame, run_self_test); }
// Called after a new world has been formed.
HVD_JAX_EXPORT void hvd_jax_forget_started() {
  forget_started();
  forget_behind();
}
