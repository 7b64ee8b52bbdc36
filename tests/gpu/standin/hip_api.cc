// The same machine under HIP's names: each function calls the one of CUDA. The flags and most codes are equal; PTX does
// not load.
#include <cstdio>

#include "cuda_call.h"

using namespace standin;

namespace {

// HIP makes the context of the current device by itself; threads begin with device 0.
int ensure_context() {
  if (const int code = cuInit(0); code != 0) return code;
  if (current_context() != nullptr) return 0;
  const std::lock_guard lock(core().mutex);
  context_stack().push_back(&primary_context(0));
  return 0;
}

}  // namespace

#define HIP_FORWARD(name, parameters, target, arguments)           \
  STANDIN_API int name parameters {                                \
    if (const int code = ensure_context(); code != 0) return code; \
    return target arguments;                                       \
  }

HIP_FORWARD(hipDriverGetVersion, (int* version), cuDriverGetVersion, (version))
HIP_FORWARD(hipGetDeviceCount, (int* count), cuDeviceGetCount, (count))
HIP_FORWARD(hipGetDevice, (int* device), cuCtxGetDevice, (device))
HIP_FORWARD(hipDeviceGet, (int* device, int ordinal), cuDeviceGet, (device, ordinal))
HIP_FORWARD(hipDeviceGetName, (char* name, int bytes, int device), cuDeviceGetName, (name, bytes, device))
HIP_FORWARD(hipDeviceGetPCIBusId, (char* text, int bytes, int device), cuDeviceGetPCIBusId, (text, bytes, device))
HIP_FORWARD(hipDeviceGetUuid, (void* uuid, int device), cuDeviceGetUuid, (uuid, device))
HIP_FORWARD(hipDeviceGetAttribute, (int* value, int attribute, int device), cuDeviceGetAttribute,
            (value, attribute, device))
HIP_FORWARD(hipDeviceGetStreamPriorityRange, (int* least, int* greatest), cuCtxGetStreamPriorityRange,
            (least, greatest))
HIP_FORWARD(hipDeviceSynchronize, (), cuCtxSynchronize, ())
HIP_FORWARD(hipStreamCreateWithPriority, (void** stream, unsigned flags, int priority), cuStreamCreateWithPriority,
            (stream, flags, priority))
HIP_FORWARD(hipStreamCreateWithFlags, (void** stream, unsigned flags), cuStreamCreate, (stream, flags))
HIP_FORWARD(hipStreamDestroy, (void* stream), cuStreamDestroy_v2, (stream))
HIP_FORWARD(hipStreamWaitEvent, (void* stream, void* event, unsigned flags), cuStreamWaitEvent, (stream, event, flags))
HIP_FORWARD(hipStreamQuery, (void* stream), cuStreamQuery, (stream))
HIP_FORWARD(hipStreamSynchronize, (void* stream), cuStreamSynchronize, (stream))
HIP_FORWARD(hipStreamIsCapturing, (void* stream, int* status), cuStreamIsCapturing, (stream, status))
HIP_FORWARD(hipStreamBeginCapture, (void* stream, int mode), cuStreamBeginCapture_v2, (stream, mode))
HIP_FORWARD(hipStreamEndCapture, (void* stream, void** graph), cuStreamEndCapture, (stream, graph))
HIP_FORWARD(hipEventCreateWithFlags, (void** event, unsigned flags), cuEventCreate, (event, flags))
HIP_FORWARD(hipEventRecord, (void* event, void* stream), cuEventRecord, (event, stream))
HIP_FORWARD(hipEventQuery, (void* event), cuEventQuery, (event))
HIP_FORWARD(hipEventSynchronize, (void* event), cuEventSynchronize, (event))
HIP_FORWARD(hipEventElapsedTime, (float* milliseconds, void* start, void* end), cuEventElapsedTime,
            (milliseconds, start, end))
HIP_FORWARD(hipEventDestroy, (void* event), cuEventDestroy_v2, (event))
HIP_FORWARD(hipMalloc, (void** pointer, size_t bytes), cuMemAlloc_v2, (reinterpret_cast<uint64_t*>(pointer), bytes))
HIP_FORWARD(hipFree, (void* pointer), cuMemFree_v2, (reinterpret_cast<uint64_t>(pointer)))
HIP_FORWARD(hipMemGetInfo, (size_t * free, size_t* total), cuMemGetInfo_v2, (free, total))
HIP_FORWARD(hipHostMalloc, (void** block, size_t bytes, unsigned flags), cuMemHostAlloc, (block, bytes, flags))
HIP_FORWARD(hipHostFree, (void* block), cuMemFreeHost, (block))
HIP_FORWARD(hipMemcpyDtoDAsync, (void* to, void* from, size_t bytes, void* stream), cuMemcpyDtoDAsync_v2,
            (reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), bytes, stream))
HIP_FORWARD(hipMemcpyHtoDAsync, (void* to, const void* from, size_t bytes, void* stream), cuMemcpyHtoDAsync_v2,
            (reinterpret_cast<uint64_t>(to), from, bytes, stream))
HIP_FORWARD(hipMemcpyDtoHAsync, (void* to, void* from, size_t bytes, void* stream), cuMemcpyDtoHAsync_v2,
            (to, reinterpret_cast<uint64_t>(from), bytes, stream))
HIP_FORWARD(hipMemsetD8Async, (void* to, unsigned char value, size_t bytes, void* stream), cuMemsetD8Async,
            (reinterpret_cast<uint64_t>(to), value, bytes, stream))
HIP_FORWARD(hipPointerGetAttribute, (void* value, int attribute, void* pointer), cuPointerGetAttribute,
            (value, attribute, reinterpret_cast<uint64_t>(pointer)))
HIP_FORWARD(hipDevicePrimaryCtxGetState, (int device, unsigned* flags, int* active), cuDevicePrimaryCtxGetState,
            (device, flags, active))

STANDIN_API int hipInit(unsigned flags) { return cuInit(flags); }

STANDIN_API int hipSetDevice(int device) {
  if (const int code = cuInit(0); code != 0) return code;
  if (device < 0 || device >= settings().gpus) return cuda::kInvalidDevice;
  if (!context_stack().empty()) context_stack().pop_back();
  const std::lock_guard lock(core().mutex);
  context_stack().push_back(&primary_context(device));
  return 0;
}

STANDIN_API int hipModuleLoadData(void**, const void*) { return cuda::kNoBinary; }
STANDIN_API int hipModuleGetFunction(void**, void*, const char*) { return cuda::kInvalidHandle; }
STANDIN_API int hipModuleUnload(void*) { return cuda::kInvalidHandle; }
STANDIN_API int hipModuleLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                      void*, void**, void**) {
  return cuda::kInvalidHandle;
}

STANDIN_API const char* hipGetErrorName(int code) {
  const char* name = nullptr;
  cuGetErrorName(code, &name);
  return name != nullptr ? name : "hipErrorUnknown";
}
STANDIN_API const char* hipGetErrorString(int code) {
  const char* text = nullptr;
  cuGetErrorString(code, &text);
  return text != nullptr ? text : "unknown error";
}
