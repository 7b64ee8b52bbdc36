#include "backends/nccl/cuda_api.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <array>

namespace hvd {
namespace {

// A function, by its name in either library; null: that one has none.
struct Symbol {
  void** slot;
  const char* cuda;
  const char* hip;
};

template <class Function>
Symbol symbol(Function& slot, const char* cuda, const char* hip) {
  return {reinterpret_cast<void**>(&slot), cuda, hip};
}

}  // namespace

Result<CudaApi> read_cuda_api(void* library, bool is_hip) {
  CudaApi api;
  api.is_hip = is_hip;
  const std::array symbols{
      symbol(api.init, "cuInit", "hipInit"),
      symbol(api.driver_version, "cuDriverGetVersion", "hipDriverGetVersion"),
      symbol(api.device_count, "cuDeviceGetCount", "hipGetDeviceCount"),
      symbol(api.device_get, "cuDeviceGet", "hipDeviceGet"),
      symbol(api.device_name, "cuDeviceGetName", "hipDeviceGetName"),
      symbol(api.device_pci_id, "cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId"),
      symbol(api.context_retain, "cuDevicePrimaryCtxRetain", nullptr),
      symbol(api.context_release, "cuDevicePrimaryCtxRelease_v2", nullptr),
      symbol(api.context_push, "cuCtxPushCurrent_v2", nullptr),
      symbol(api.context_pop, "cuCtxPopCurrent_v2", nullptr),
      symbol(api.device_set, nullptr, "hipSetDevice"),
      symbol(api.device_current, nullptr, "hipGetDevice"),
      symbol(api.stream_create, "cuStreamCreateWithPriority", "hipStreamCreateWithPriority"),
      symbol(api.stream_destroy, "cuStreamDestroy_v2", "hipStreamDestroy"),
      symbol(api.stream_wait_event, "cuStreamWaitEvent", "hipStreamWaitEvent"),
      symbol(api.stream_synchronize, "cuStreamSynchronize", "hipStreamSynchronize"),
      symbol(api.stream_is_capturing, "cuStreamIsCapturing", "hipStreamIsCapturing"),
      symbol(api.event_create, "cuEventCreate", "hipEventCreateWithFlags"),
      symbol(api.event_record, "cuEventRecord", "hipEventRecord"),
      symbol(api.event_query, "cuEventQuery", "hipEventQuery"),
      symbol(api.event_elapsed, "cuEventElapsedTime", "hipEventElapsedTime"),
      symbol(api.event_destroy, "cuEventDestroy_v2", "hipEventDestroy"),
      symbol(api.memory_allocate, "cuMemAlloc_v2", "hipMalloc"),
      symbol(api.memory_free, "cuMemFree_v2", "hipFree"),
      symbol(api.memory_info, "cuMemGetInfo_v2", "hipMemGetInfo"),
      symbol(api.host_allocate, "cuMemHostAlloc", "hipHostMalloc"),
      symbol(api.host_free, "cuMemFreeHost", "hipHostFree"),
      symbol(api.copy_on_device, "cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync"),
      symbol(api.copy_to_device, "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync"),
      symbol(api.copy_to_host, "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync"),
      symbol(api.memory_set, "cuMemsetD8Async", "hipMemsetD8Async"),
      symbol(api.module_load, "cuModuleLoadDataEx", nullptr),
      symbol(api.module_function, "cuModuleGetFunction", nullptr),
      symbol(api.module_unload, "cuModuleUnload", nullptr),
      symbol(api.launch, "cuLaunchKernel", nullptr),
      symbol(api.error_text, "cuGetErrorString", nullptr),
      symbol(api.hip_error_text, nullptr, "hipGetErrorString"),
  };
  for (const Symbol& each : symbols) {
    const char* name = is_hip ? each.hip : each.cuda;
    if (name == nullptr) continue;
    *each.slot = ::dlsym(library, name);
    if (*each.slot == nullptr) {
      return Status(Code::unknown, fmt::format("the {} lacks {}: it is too old or no driver library",
                                               is_hip ? "HIP library" : "CUDA driver", name));
    }
  }
  return api;
}

std::string CudaApi::describe(CudaResult result) const {
  const char* text = nullptr;
  if (hip_error_text != nullptr) text = hip_error_text(result);
  if (error_text != nullptr && error_text(result, &text) != kCudaSuccess) text = nullptr;
  if (text == nullptr) text = "unknown error";
  return fmt::format("{} error {} ({})", is_hip ? "HIP" : "CUDA", result, text);
}

bool is_sticky(CudaResult result) {
  switch (result) {
    case 214:
    case 220:
    case 700:
    case 702:
    case 709:
    case 710:
    case 999: return true;
    default: return result >= 714 && result <= 719;
  }
}

}  // namespace hvd
