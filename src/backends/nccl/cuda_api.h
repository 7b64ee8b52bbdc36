// The CUDA driver API, or HIP, as a table of functions that are looked up at run time: own declarations of what is
// used, so that no header is needed to build. Thread rule: the table is constant once it is filled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace hvd {

using CudaResult = int;
using CudaDevice = int;
using CudaPointer = uint64_t;
using CudaContext = struct CudaContextRecord*;
using CudaStream = struct CudaStreamRecord*;
using CudaEvent = struct CudaEventRecord*;
using CudaModule = struct CudaModuleRecord*;
using CudaFunction = struct CudaFunctionRecord*;

inline constexpr CudaResult kCudaSuccess = 0;
inline constexpr CudaResult kCudaOutOfMemory = 2;
inline constexpr CudaResult kCudaNotReady = 600;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;

struct CudaApi {
  CudaResult (*init)(unsigned flags) = nullptr;
  CudaResult (*driver_version)(int* version) = nullptr;
  CudaResult (*device_count)(int* count) = nullptr;
  CudaResult (*device_get)(CudaDevice* device, int ordinal) = nullptr;
  CudaResult (*device_name)(char* name, int capacity, CudaDevice device) = nullptr;
  CudaResult (*device_pci_id)(char* id, int capacity, CudaDevice device) = nullptr;
  // CUDA has a stack of contexts for each thread; null for HIP.
  CudaResult (*context_retain)(CudaContext* context, CudaDevice device) = nullptr;
  CudaResult (*context_release)(CudaDevice device) = nullptr;
  CudaResult (*context_push)(CudaContext context) = nullptr;
  CudaResult (*context_pop)(CudaContext* context) = nullptr;
  // HIP has a current device for each thread; null for CUDA.
  CudaResult (*device_set)(CudaDevice device) = nullptr;
  CudaResult (*device_current)(CudaDevice* device) = nullptr;
  CudaResult (*stream_create)(CudaStream* stream, unsigned flags, int priority) = nullptr;
  CudaResult (*stream_destroy)(CudaStream stream) = nullptr;
  CudaResult (*stream_wait_event)(CudaStream stream, CudaEvent event, unsigned flags) = nullptr;
  CudaResult (*stream_synchronize)(CudaStream stream) = nullptr;
  CudaResult (*stream_is_capturing)(CudaStream stream, int* status) = nullptr;
  CudaResult (*event_create)(CudaEvent* event, unsigned flags) = nullptr;
  CudaResult (*event_record)(CudaEvent event, CudaStream stream) = nullptr;
  CudaResult (*event_query)(CudaEvent event) = nullptr;
  CudaResult (*event_elapsed)(float* milliseconds, CudaEvent start, CudaEvent end) = nullptr;
  CudaResult (*event_destroy)(CudaEvent event) = nullptr;
  CudaResult (*memory_allocate)(CudaPointer* memory, size_t bytes) = nullptr;
  CudaResult (*memory_free)(CudaPointer memory) = nullptr;
  CudaResult (*memory_info)(size_t* free, size_t* total) = nullptr;
  CudaResult (*host_allocate)(void** memory, size_t bytes, unsigned flags) = nullptr;
  CudaResult (*host_free)(void* memory) = nullptr;
  CudaResult (*copy_on_device)(CudaPointer to, CudaPointer from, size_t bytes, CudaStream stream) = nullptr;
  CudaResult (*copy_to_device)(CudaPointer to, const void* from, size_t bytes, CudaStream stream) = nullptr;
  CudaResult (*copy_to_host)(void* to, CudaPointer from, size_t bytes, CudaStream stream) = nullptr;
  CudaResult (*memory_set)(CudaPointer memory, unsigned char value, size_t bytes, CudaStream stream) = nullptr;
  // PTX does not load on AMD's GPUs, so the functions for kernels are null for HIP.
  CudaResult (*module_load)(CudaModule* module, const void* image, unsigned options, int* names,
                            void** values) = nullptr;
  CudaResult (*module_function)(CudaFunction* function, CudaModule module, const char* name) = nullptr;
  CudaResult (*module_unload)(CudaModule module) = nullptr;
  CudaResult (*launch)(CudaFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared_bytes, CudaStream stream, void** parameters,
                       void** extra) = nullptr;
  CudaResult (*error_text)(CudaResult result, const char** text) = nullptr;
  const char* (*hip_error_text)(CudaResult result) = nullptr;
  bool is_hip = false;

  // "CUDA error 700 (an illegal memory access was encountered)".
  std::string describe(CudaResult result) const;
};

// Fills the table from an open library (dlopen). Not ok: names what is missing.
Result<CudaApi> read_cuda_api(void* library, bool is_hip);

// After one of these every later call of the process fails.
bool is_sticky(CudaResult result);

}  // namespace hvd
