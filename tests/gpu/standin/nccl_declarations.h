// The part of NCCL's API that the stand-in provides, as lists by version: result, name and prototype. Communicators,
// streams and windows are void*, enums are int; tests/cpp/standin compares the lists with the real nccl.h.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

namespace standin::nccl {

struct UniqueId {
  char internal[128];
};

// The layout of 2.18 up to and including traffic_class of 2.26; `size` and `version` say how much of it the caller has.
struct Config {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cga_cluster_size;
  int min_ctas;
  int max_ctas;
  const char* net_name;
  int split_share;
  int traffic_class;
};
inline constexpr unsigned kConfigMagic = 0xcafebeef;
inline constexpr int kUndefined = INT_MIN;

enum Result : int {
  kSuccess = 0,
  kCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
  kTimeout = 8,
};
enum Type : int { kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kFloat16, kFloat32, kFloat64, kBfloat16, kTypes };
enum Op : int { kSum, kProd, kMax, kMin, kAvg, kBuiltinOps };

}  // namespace standin::nccl

// X(result, name, parameters)
#define STANDIN_NCCL_FUNCTIONS_2_18(X)                                                                \
  X(int, ncclGetVersion, (int*))                                                                      \
  X(int, ncclGetUniqueId, (standin::nccl::UniqueId*))                                                 \
  X(const char*, ncclGetErrorString, (int))                                                           \
  X(const char*, ncclGetLastError, (void*))                                                           \
  X(int, ncclCommInitRank, (void**, int, standin::nccl::UniqueId, int))                               \
  X(int, ncclCommInitRankConfig, (void**, int, standin::nccl::UniqueId, int, standin::nccl::Config*)) \
  X(int, ncclCommSplit, (void*, int, int, void**, standin::nccl::Config*))                            \
  X(int, ncclCommGetAsyncError, (void*, int*))                                                        \
  X(int, ncclCommFinalize, (void*))                                                                   \
  X(int, ncclCommDestroy, (void*))                                                                    \
  X(int, ncclCommAbort, (void*))                                                                      \
  X(int, ncclCommCount, (const void*, int*))                                                          \
  X(int, ncclCommUserRank, (const void*, int*))                                                       \
  X(int, ncclCommCuDevice, (const void*, int*))                                                       \
  X(int, ncclAllReduce, (const void*, void*, size_t, int, int, void*, void*))                         \
  X(int, ncclReduce, (const void*, void*, size_t, int, int, int, void*, void*))                       \
  X(int, ncclBroadcast, (const void*, void*, size_t, int, int, void*, void*))                         \
  X(int, ncclReduceScatter, (const void*, void*, size_t, int, int, void*, void*))                     \
  X(int, ncclAllGather, (const void*, void*, size_t, int, void*, void*))                              \
  X(int, ncclSend, (const void*, size_t, int, int, void*, void*))                                     \
  X(int, ncclRecv, (void*, size_t, int, int, void*, void*))                                           \
  X(int, ncclGroupStart, ())                                                                          \
  X(int, ncclGroupEnd, ())                                                                            \
  X(int, ncclRedOpCreatePreMulSum, (int*, void*, int, int, void*))                                    \
  X(int, ncclRedOpDestroy, (int, void*))
#define STANDIN_NCCL_FUNCTIONS_2_19(X)                           \
  X(int, ncclMemAlloc, (void**, size_t))                         \
  X(int, ncclMemFree, (void*))                                   \
  X(int, ncclCommRegister, (const void*, void*, size_t, void**)) \
  X(int, ncclCommDeregister, (const void*, void*))
#define STANDIN_NCCL_FUNCTIONS_2_27(X)                                \
  X(int, ncclCommWindowRegister, (void*, void*, size_t, void**, int)) \
  X(int, ncclCommWindowDeregister, (void*, void*))                    \
  X(int, ncclCommShrink, (void*, int*, int, void**, standin::nccl::Config*, int))
#define STANDIN_NCCL_FUNCTIONS_2_28(X)                                     \
  X(int, ncclAlltoAll, (const void*, void*, size_t, int, void*, void*))    \
  X(int, ncclGather, (const void*, void*, size_t, int, int, void*, void*)) \
  X(int, ncclScatter, (const void*, void*, size_t, int, int, void*, void*))
