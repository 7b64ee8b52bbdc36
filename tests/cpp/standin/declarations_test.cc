// The stand-in declares CUDA and NCCL itself; where the real headers are
// installed, both must agree: kinds and sizes of all parameters, numbers, and
// the layout of structs.
#include <gtest/gtest.h>

#include "cuda_declarations.h"
#include "nccl_declarations.h"
#include "support/same_function.h"

using testing_support::SameFunction;

#if __has_include(<cuda.h>)
#include <cuda.h>

namespace {

TEST(Declarations, OfCudaAreThoseOfCudaH) {
#define COMPARE(name, parameters) EXPECT_TRUE((SameFunction<int parameters, decltype(::name)>::value)) << #name;
  STANDIN_CUDA_FUNCTIONS(COMPARE)
#undef COMPARE
  namespace cu = standin::cuda;
  EXPECT_EQ(int{cu::kOutOfMemory}, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(int{cu::kNotInitialized}, CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(int{cu::kStubLibrary}, CUDA_ERROR_STUB_LIBRARY);
  EXPECT_EQ(int{cu::kNoDevice}, CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(int{cu::kInvalidDevice}, CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(int{cu::kInvalidContext}, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(int{cu::kNoBinary}, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(int{cu::kInvalidPtx}, CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(int{cu::kUnsupportedPtx}, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(int{cu::kInvalidHandle}, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(int{cu::kNotFound}, CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(int{cu::kNotReady}, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(int{cu::kIllegalAddress}, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(int{cu::kMisalignedAddress}, CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(int{cu::kDriverMismatch}, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  EXPECT_EQ(int{cu::kCaptureUnsupported}, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(int{cu::kCaptureInvalidated}, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cu::kStreamNonBlocking, unsigned{CU_STREAM_NON_BLOCKING});
  EXPECT_EQ(cu::kEventBlockingSync, unsigned{CU_EVENT_BLOCKING_SYNC});
  EXPECT_EQ(cu::kEventDisableTiming, unsigned{CU_EVENT_DISABLE_TIMING});
  EXPECT_EQ(cu::kAttributeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(cu::kAttributeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(cu::kPointerMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  EXPECT_EQ(cu::kPointerOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  EXPECT_EQ(cu::kMemoryHost, CU_MEMORYTYPE_HOST);
  EXPECT_EQ(cu::kMemoryDevice, CU_MEMORYTYPE_DEVICE);
}

}  // namespace
#else
TEST(Declarations, OfCudaAreThoseOfCudaH) { GTEST_SKIP() << "no cuda.h; it comes with a CUDA toolkit"; }
#endif

#if __has_include(<nccl.h>)
#include <nccl.h>

namespace {

TEST(Declarations, OfNcclAreThoseOfNcclH) {
  namespace nc = standin::nccl;
#define COMPARE(result, name, parameters) \
  EXPECT_TRUE((SameFunction<result parameters, decltype(::name)>::value)) << #name;
  STANDIN_NCCL_FUNCTIONS_2_18(COMPARE)
#if NCCL_VERSION_CODE >= 21900
  STANDIN_NCCL_FUNCTIONS_2_19(COMPARE)
#endif
#if NCCL_VERSION_CODE >= 22700
  STANDIN_NCCL_FUNCTIONS_2_27(COMPARE)
#endif
#if NCCL_VERSION_CODE >= 22800
  STANDIN_NCCL_FUNCTIONS_2_28(COMPARE)
#endif
#undef COMPARE
  static_assert(sizeof(nc::UniqueId) == sizeof(ncclUniqueId));
  static_assert(offsetof(nc::Config, magic) == offsetof(ncclConfig_t, magic));
  static_assert(offsetof(nc::Config, version) == offsetof(ncclConfig_t, version));
  static_assert(offsetof(nc::Config, blocking) == offsetof(ncclConfig_t, blocking));
  static_assert(offsetof(nc::Config, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
  static_assert(offsetof(nc::Config, net_name) == offsetof(ncclConfig_t, netName));
  static_assert(offsetof(nc::Config, split_share) == offsetof(ncclConfig_t, splitShare));
#if NCCL_VERSION_CODE >= 22600
  static_assert(offsetof(nc::Config, traffic_class) == offsetof(ncclConfig_t, trafficClass));
#endif
  const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(initial.magic, nc::kConfigMagic);
  EXPECT_EQ(initial.blocking, nc::kUndefined);
  EXPECT_EQ(int{nc::kRemoteError}, ncclRemoteError);
  EXPECT_EQ(int{nc::kInProgress}, ncclInProgress);
  EXPECT_EQ(int{nc::kInvalidUsage}, ncclInvalidUsage);
  EXPECT_EQ(int{nc::kInvalidArgument}, ncclInvalidArgument);
  EXPECT_EQ(int{nc::kFloat16}, ncclFloat16);
  EXPECT_EQ(int{nc::kBfloat16}, ncclBfloat16);
  EXPECT_EQ(int{nc::kUint64}, ncclUint64);
  EXPECT_EQ(int{nc::kAvg}, ncclAvg);
  EXPECT_EQ(int{nc::kMin}, ncclMin);
}

}  // namespace
#else
TEST(Declarations, OfNcclAreThoseOfNcclH) { GTEST_SKIP() << "no nccl.h; it comes with the package nvidia-nccl-cu12"; }
#endif
