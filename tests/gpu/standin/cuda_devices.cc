// Initialisation, devices, contexts and error texts.
#include <cstdio>
#include <cstring>

#include "cuda_call.h"

namespace standin {

std::string list_allocations();
std::string list_streams();
std::string list_handles();
std::string list_modules();

namespace {

bool initialized = false;  // guarded by core().mutex

bool valid(int gpu) { return gpu >= 0 && gpu < settings().gpus; }

void start() {
  const std::lock_guard lock(core().mutex);
  if (initialized) return;
  initialized = true;
  start_core();
  for (auto* list : {list_allocations, list_streams, list_handles, list_modules}) at_exit_list(list);
  if (settings().schedule == Schedule::random) std::fprintf(stderr, "stand-in: schedule %s\n", schedule_name().c_str());
}

}  // namespace

int enter(const char* call, size_t size) {
  if (forked()) return cuda::kNotInitialized;
  if (!core_started()) return cuda::kNotInitialized;
  if (const int code = sticky_error(); code != 0) return code;
  const auto fault = fault_at(call, size);
  if (!fault || fault->fault != Fault::code) return 0;
  if (cuda::sticky(fault->value)) set_sticky_error(fault->value);
  return fault->value;
}

int enter_context(const char* call, size_t size) {
  if (const int refused = enter(call, size); refused != 0) return refused;
  return current_context() == nullptr ? cuda::kInvalidContext : 0;
}

Stream* launch_stream(void* handle, const char* call, int* code) {
  Stream* stream = as_stream(handle, call);
  *code = cuda::kInvalidHandle;
  if (stream == nullptr) return nullptr;
  const std::string name = std::string(call) + " on stream " + std::to_string(stream->number);
  if (stream->context != current_context()) {
    violation(name + ": the stream belongs to GPU " + std::to_string(stream->context->gpu) +
              ", the current context to GPU " + std::to_string(current_context()->gpu) + "\n" + to_text(here()));
    return nullptr;
  }
  if (stream->capture != 0) {
    stream->capture = 2;
    violation(name + ": the stream is being captured, which the call breaks\n" + to_text(here()));
    *code = cuda::kCaptureUnsupported;
    return nullptr;
  }
  if (!stream->reserved_for.empty()) {
    violation(name + ": a NCCL group that uses this stream is still in progress, " + stream->reserved_for +
              "  the call came from\n" + to_text(here()));
    return nullptr;
  }
  *code = 0;
  return stream;
}

}  // namespace standin

using namespace standin;

int cuInit(unsigned) {
  if (forked()) return cuda::kNotInitialized;
  const auto fault = fault_at("cuInit");
  if (fault && fault->fault == Fault::code) return fault->value;
  if (settings().gpus == 0) return cuda::kNoDevice;
  start();
  return 0;
}

int cuDriverGetVersion(int* version) {
  *version = settings().driver_version;
  return 0;
}

int cuDeviceGetCount(int* count) {
  STANDIN_ENTER("cuDeviceGetCount");
  *count = settings().gpus;
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  STANDIN_ENTER("cuDeviceGet");
  if (!valid(ordinal)) return cuda::kInvalidDevice;
  *device = ordinal;
  return 0;
}

int cuDeviceGetName(char* name, int bytes, int device) {
  STANDIN_ENTER("cuDeviceGetName");
  if (!valid(device)) return cuda::kInvalidDevice;
  std::snprintf(name, static_cast<size_t>(bytes), "stand-in (no GPU)");
  return 0;
}

int cuDeviceGetPCIBusId(char* text, int bytes, int device) {
  STANDIN_ENTER("cuDeviceGetPCIBusId");
  if (!valid(device)) return cuda::kInvalidDevice;
  std::snprintf(text, static_cast<size_t>(bytes), "0000:%02X:00.0", static_cast<unsigned>(device + 1) & 0xff);
  return 0;
}

int cuDeviceGetUuid(void* uuid, int device) {
  STANDIN_ENTER("cuDeviceGetUuid");
  if (!valid(device)) return cuda::kInvalidDevice;
  std::memset(uuid, 0, 16);
  std::memcpy(uuid, "stand-in", 8);
  static_cast<char*>(uuid)[15] = static_cast<char>(device);
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  STANDIN_ENTER("cuDeviceGetAttribute");
  if (!valid(device)) return cuda::kInvalidDevice;
  switch (attribute) {
    case cuda::kAttributeMajor: *value = 8; return 0;
    case cuda::kAttributeMinor: *value = 0; return 0;
    case 1: *value = 1024; return 0;  // threads per block
    case 10: *value = 32; return 0;   // warp
    case 16: *value = 4; return 0;    // multiprocessors
    case 41: *value = 1; return 0;    // unified addressing
    default: *value = 0; return 0;
  }
}

int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  STANDIN_ENTER("cuDeviceTotalMem_v2");
  if (!valid(device)) return cuda::kInvalidDevice;
  *bytes = settings().memory;
  return 0;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  STANDIN_ENTER("cuDevicePrimaryCtxRetain");
  if (!valid(device)) return cuda::kInvalidDevice;
  const std::lock_guard lock(core().mutex);
  ++primary_context(device).references;
  *context = &primary_context(device);
  return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  STANDIN_ENTER("cuDevicePrimaryCtxRelease_v2");
  if (!valid(device)) return cuda::kInvalidDevice;
  const std::lock_guard lock(core().mutex);
  if (primary_context(device).references == 0) {
    violation("the context of GPU " + std::to_string(device) + " is released more often than retained\n" +
              to_text(here()));
    return cuda::kInvalidContext;
  }
  --primary_context(device).references;
  return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  STANDIN_ENTER("cuDevicePrimaryCtxGetState");
  if (!valid(device)) return cuda::kInvalidDevice;
  const std::lock_guard lock(core().mutex);
  *flags = 0;
  *active = primary_context(device).references > 0 ? 1 : 0;
  return 0;
}

namespace {

// A context that may become current; null after a violation.
Context* usable(void* handle) {
  const std::lock_guard lock(core().mutex);
  Context* context = as_context(handle);
  if (context != nullptr && context->references > 0) return context;
  violation("not a context, or one that was released\n" + to_text(here()));
  return nullptr;
}

}  // namespace

int cuCtxPushCurrent_v2(void* handle) {
  STANDIN_ENTER("cuCtxPushCurrent_v2");
  count(&Counts::context_pushes);
  Context* context = usable(handle);
  if (context == nullptr) return cuda::kInvalidContext;
  context_stack().push_back(context);
  return 0;
}

int cuCtxPopCurrent_v2(void** context) {
  STANDIN_ENTER("cuCtxPopCurrent_v2");
  if (context_stack().empty()) return cuda::kInvalidContext;
  if (context != nullptr) *context = context_stack().back();
  context_stack().pop_back();
  return 0;
}

int cuCtxGetCurrent(void** context) {
  STANDIN_ENTER("cuCtxGetCurrent");
  *context = current_context();
  return 0;
}

int cuCtxSetCurrent(void* handle) {
  STANDIN_ENTER("cuCtxSetCurrent");
  if (!context_stack().empty()) context_stack().pop_back();
  if (handle == nullptr) return 0;
  Context* context = usable(handle);
  if (context == nullptr) return cuda::kInvalidContext;
  context_stack().push_back(context);
  return 0;
}

int cuCtxGetDevice(int* device) {
  STANDIN_ENTER_CONTEXT("cuCtxGetDevice");
  *device = current_context()->gpu;
  return 0;
}

int cuCtxSynchronize() {
  STANDIN_ENTER_CONTEXT("cuCtxSynchronize");
  count(&Counts::host_syncs);
  std::unique_lock lock(core().mutex);
  wait_for_all(current_context(), lock);
  join_all_streams(current_context());
  return sticky_error();
}

int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  STANDIN_ENTER_CONTEXT("cuCtxGetStreamPriorityRange");
  *least = 0;
  *greatest = -5;
  return 0;
}

namespace {

struct ErrorText {
  int code;
  const char *name, *text;
};
constexpr ErrorText kErrors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

int find_text(int code, const char* ErrorText::*which, const char** out) {
  for (const ErrorText& error : kErrors) {
    if (error.code != code) continue;
    *out = error.*which;
    return 0;
  }
  *out = nullptr;
  return cuda::kInvalidValue;
}

}  // namespace

int cuGetErrorName(int code, const char** name) { return find_text(code, &ErrorText::name, name); }
int cuGetErrorString(int code, const char** text) { return find_text(code, &ErrorText::text, text); }
