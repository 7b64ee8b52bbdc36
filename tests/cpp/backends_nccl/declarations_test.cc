// The backend declares what it uses of CUDA and NCCL itself. Where the real headers are installed, both must agree.
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "backends/nccl/cuda_api.h"
#include "backends/nccl/nccl_api.h"
#include "support/same_function.h"

namespace {

// The functions are only named: there is nothing to link with.
template <typename Pointer, typename Real>
constexpr bool kIsSame = testing_support::SameFunction<std::remove_pointer_t<Pointer>, Real>::value;

}  // namespace

#if __has_include(<cuda.h>)
#include <cuda.h>

TEST(Declarations, OfTheDriverAreThoseOfCudaH) {
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::init), decltype(::cuInit)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::driver_version), decltype(::cuDriverGetVersion)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::device_count), decltype(::cuDeviceGetCount)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::device_get), decltype(::cuDeviceGet)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::device_name), decltype(::cuDeviceGetName)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::device_pci_id), decltype(::cuDeviceGetPCIBusId)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::context_retain), decltype(::cuDevicePrimaryCtxRetain)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::context_release), decltype(::cuDevicePrimaryCtxRelease_v2)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::context_push), decltype(::cuCtxPushCurrent_v2)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::context_pop), decltype(::cuCtxPopCurrent_v2)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::stream_create), decltype(::cuStreamCreateWithPriority)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::stream_destroy), decltype(::cuStreamDestroy_v2)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::stream_wait_event), decltype(::cuStreamWaitEvent)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::stream_synchronize), decltype(::cuStreamSynchronize)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::stream_is_capturing), decltype(::cuStreamIsCapturing)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::event_create), decltype(::cuEventCreate)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::event_record), decltype(::cuEventRecord)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::event_query), decltype(::cuEventQuery)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::event_destroy), decltype(::cuEventDestroy_v2)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::memory_allocate), decltype(::cuMemAlloc_v2)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::memory_free), decltype(::cuMemFree_v2)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::memory_info), decltype(::cuMemGetInfo_v2)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::host_allocate), decltype(::cuMemHostAlloc)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::host_free), decltype(::cuMemFreeHost)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::copy_on_device), decltype(::cuMemcpyDtoDAsync_v2)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::copy_to_device), decltype(::cuMemcpyHtoDAsync_v2)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::copy_to_host), decltype(::cuMemcpyDtoHAsync_v2)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::memory_set), decltype(::cuMemsetD8Async)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::module_load), decltype(::cuModuleLoadDataEx)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::module_function), decltype(::cuModuleGetFunction)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::module_unload), decltype(::cuModuleUnload)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::launch), decltype(::cuLaunchKernel)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::CudaApi::error_text), decltype(::cuGetErrorString)>));
  EXPECT_EQ(hvd::kCudaSuccess, CUDA_SUCCESS);
  EXPECT_EQ(hvd::kCudaOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(hvd::kCudaNotReady, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(hvd::kStreamNonBlocking, unsigned{CU_STREAM_NON_BLOCKING});
  EXPECT_EQ(hvd::kEventDisableTiming, unsigned{CU_EVENT_DISABLE_TIMING});
}

TEST(Declarations, StickyErrorsAreThoseOfCudaH) {
  for (CUresult code :
       {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_ASSERT,
        CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_INSTRUCTION, CUDA_ERROR_MISALIGNED_ADDRESS,
        CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_PC, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_ECC_UNCORRECTABLE,
        CUDA_ERROR_NVLINK_UNCORRECTABLE, CUDA_ERROR_UNKNOWN})
    EXPECT_TRUE(hvd::is_sticky(code)) << code;
  for (CUresult code : {CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_READY,
                        CUDA_ERROR_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED})
    EXPECT_FALSE(hvd::is_sticky(code)) << code;
}
#else
TEST(Declarations, OfTheDriverAreThoseOfCudaH) { GTEST_SKIP() << "no cuda.h; it comes with a CUDA toolkit"; }
#endif

#if __has_include(<nccl.h>)
#include <nccl.h>

TEST(Declarations, OfNcclAreThoseOfNcclH) {
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::version), decltype(::ncclGetVersion)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::unique_id), decltype(::ncclGetUniqueId)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::error_text), decltype(::ncclGetErrorString)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::last_error), decltype(::ncclGetLastError)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::comm_init), decltype(::ncclCommInitRankConfig)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::comm_state), decltype(::ncclCommGetAsyncError)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::comm_finalize), decltype(::ncclCommFinalize)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::comm_destroy), decltype(::ncclCommDestroy)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::comm_abort), decltype(::ncclCommAbort)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::all_reduce), decltype(::ncclAllReduce)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::reduce), decltype(::ncclReduce)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::broadcast), decltype(::ncclBroadcast)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::reduce_scatter), decltype(::ncclReduceScatter)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::all_gather), decltype(::ncclAllGather)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::send), decltype(::ncclSend)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::receive), decltype(::ncclRecv)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::group_start), decltype(::ncclGroupStart)>));
  EXPECT_TRUE((kIsSame<decltype(hvd::NcclApi::group_end), decltype(::ncclGroupEnd)>));
  EXPECT_EQ(sizeof(hvd::NcclId), sizeof(ncclUniqueId));
  EXPECT_EQ(offsetof(hvd::NcclConfig, blocking), offsetof(ncclConfig_t, blocking));
  EXPECT_EQ(offsetof(hvd::NcclConfig, net_name), offsetof(ncclConfig_t, netName));
  EXPECT_EQ(offsetof(hvd::NcclConfig, split_share), offsetof(ncclConfig_t, splitShare));
  const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(hvd::NcclConfig().magic, initial.magic);
  EXPECT_EQ(static_cast<int>(hvd::NcclResult::in_progress), ncclInProgress);
  EXPECT_EQ(static_cast<int>(hvd::NcclResult::remote_error), ncclRemoteError);
  EXPECT_EQ(static_cast<int>(hvd::NcclType::bf16), ncclBfloat16);
  EXPECT_EQ(static_cast<int>(hvd::NcclType::u8), ncclUint8);
  EXPECT_EQ(static_cast<int>(hvd::NcclType::f16), ncclFloat16);
  EXPECT_EQ(static_cast<int>(hvd::NcclOp::average), ncclAvg);
  EXPECT_EQ(static_cast<int>(hvd::NcclOp::min), ncclMin);
}
#else
TEST(Declarations, OfNcclAreThoseOfNcclH) { GTEST_SKIP() << "no nccl.h; it comes with the package nvidia-nccl-cu12"; }
#endif
