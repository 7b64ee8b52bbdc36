// The part of the CUDA driver API that the stand-in provides, as one list: name and prototype. Handles are void*, enums
// are int; tests/cpp/standin compares the list with the real cuda.h where that is installed.
#pragma once

#include <cstddef>
#include <cstdint>

// X(name, parameters); every function returns an int, the CUresult.
#define STANDIN_CUDA_FUNCTIONS(X)                                                                         \
  X(cuInit, (unsigned))                                                                                   \
  X(cuDriverGetVersion, (int*))                                                                           \
  X(cuDeviceGetCount, (int*))                                                                             \
  X(cuDeviceGet, (int*, int))                                                                             \
  X(cuDeviceGetName, (char*, int, int))                                                                   \
  X(cuDeviceGetPCIBusId, (char*, int, int))                                                               \
  X(cuDeviceGetUuid, (void*, int))                                                                        \
  X(cuDeviceGetAttribute, (int*, int, int))                                                               \
  X(cuDeviceTotalMem_v2, (size_t*, int))                                                                  \
  X(cuDevicePrimaryCtxRetain, (void**, int))                                                              \
  X(cuDevicePrimaryCtxRelease_v2, (int))                                                                  \
  X(cuDevicePrimaryCtxGetState, (int, unsigned*, int*))                                                   \
  X(cuCtxPushCurrent_v2, (void*))                                                                         \
  X(cuCtxPopCurrent_v2, (void**))                                                                         \
  X(cuCtxGetCurrent, (void**))                                                                            \
  X(cuCtxSetCurrent, (void*))                                                                             \
  X(cuCtxGetDevice, (int*))                                                                               \
  X(cuCtxSynchronize, ())                                                                                 \
  X(cuCtxGetStreamPriorityRange, (int*, int*))                                                            \
  X(cuStreamCreate, (void**, unsigned))                                                                   \
  X(cuStreamCreateWithPriority, (void**, unsigned, int))                                                  \
  X(cuStreamDestroy_v2, (void*))                                                                          \
  X(cuStreamWaitEvent, (void*, void*, unsigned))                                                          \
  X(cuStreamQuery, (void*))                                                                               \
  X(cuStreamSynchronize, (void*))                                                                         \
  X(cuStreamIsCapturing, (void*, int*))                                                                   \
  X(cuStreamBeginCapture_v2, (void*, int))                                                                \
  X(cuStreamEndCapture, (void*, void**))                                                                  \
  X(cuGraphDestroy, (void*))                                                                              \
  X(cuEventCreate, (void**, unsigned))                                                                    \
  X(cuEventRecord, (void*, void*))                                                                        \
  X(cuEventQuery, (void*))                                                                                \
  X(cuEventSynchronize, (void*))                                                                          \
  X(cuEventElapsedTime, (float*, void*, void*))                                                           \
  X(cuEventDestroy_v2, (void*))                                                                           \
  X(cuMemAlloc_v2, (uint64_t*, size_t))                                                                   \
  X(cuMemFree_v2, (uint64_t))                                                                             \
  X(cuMemGetInfo_v2, (size_t*, size_t*))                                                                  \
  X(cuMemHostAlloc, (void**, size_t, unsigned))                                                           \
  X(cuMemFreeHost, (void*))                                                                               \
  X(cuMemcpyDtoDAsync_v2, (uint64_t, uint64_t, size_t, void*))                                            \
  X(cuMemcpyHtoDAsync_v2, (uint64_t, const void*, size_t, void*))                                         \
  X(cuMemcpyDtoHAsync_v2, (void*, uint64_t, size_t, void*))                                               \
  X(cuMemsetD8Async, (uint64_t, unsigned char, size_t, void*))                                            \
  X(cuPointerGetAttribute, (void*, int, uint64_t))                                                        \
  X(cuModuleLoadDataEx, (void**, const void*, unsigned, int*, void**))                                    \
  X(cuModuleGetFunction, (void**, void*, const char*))                                                    \
  X(cuModuleUnload, (void*))                                                                              \
  X(cuLaunchKernel,                                                                                       \
    (void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**)) \
  X(cuGetErrorName, (int, const char**))                                                                  \
  X(cuGetErrorString, (int, const char**))

namespace standin::cuda {

// Results.
enum : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kStubLibrary = 34,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kNoBinary = 209,
  kInvalidPtx = 218,
  kUnsupportedPtx = 222,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kMisalignedAddress = 716,
  kInvalidPc = 718,
  kDriverMismatch = 803,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
};

inline constexpr unsigned kStreamNonBlocking = 1, kEventBlockingSync = 1, kEventDisableTiming = 2;
inline constexpr int kAttributeMajor = 75, kAttributeMinor = 76, kPointerMemoryType = 2, kPointerOrdinal = 9;
inline constexpr int kMemoryHost = 1, kMemoryDevice = 2;
inline constexpr uintptr_t kLegacyStream = 1, kPerThreadStream = 2;

// Errors after which every later call of the process fails.
inline bool sticky(int code) {
  return code == 214 || code == 220 || code == 700 || code == 702 || code == 709 || code == 710 ||
         (code >= 714 && code <= 719) || code == 999;
}

}  // namespace standin::cuda
