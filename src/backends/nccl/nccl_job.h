// One plan on the GPU: its operations, its communicator, and the calls that put it on a stream.
// Thread rule: filled by the thread that drives, then of the GPU thread.
#pragma once

#include <functional>
#include <vector>

#include "backends/backend.h"
#include "backends/nccl/arithmetic.h"
#include "backends/nccl/communicator.h"
#include "backends/nccl/libraries.h"
#include "base/clock.h"

namespace hvd {

struct NcclJob {
  const Plan* plan = nullptr;  // null: ends the communicators of process_set
  int32_t process_set = 0;
  std::vector<Operation*> operations;
  Communicator* communicator = nullptr;
  CudaPointer buffer = 0;  // of the fusion
  size_t buffer_bytes = 0;
  std::vector<DeviceEventRef> waits;  // besides those of the operations
  std::function<void()> launched;
  Backend::Done done;

  DeviceEventRef finished;
  std::vector<CudaPointer> scratch;  // freed at the end
  TimePoint since{};
};

struct LaunchSettings {
  bool use_kernels = true;  // HOROVOD_BATCH_D2D_MEMCOPIES
};

// Puts the work of a plan on its stream. `settle` is called after every call of NCCL that may go on in the background:
// it returns when nothing is in progress any more.
class NcclLaunch {
 public:
  using Settle = std::function<Status(NcclResult result, const char* call)>;
  NcclLaunch(const GpuLibraries& libraries, NcclJob& job, const LaunchSettings& settings, Settle settle)
      : cuda_(libraries.cuda), nccl_(libraries.nccl), job_(job), settings_(settings), settle_(std::move(settle)) {}

  Status run();

 private:
  Status allreduce();
  Status allreduce_one(Operation& operation, const NcclReduction& reduction, NcclType type);
  Status allreduce_fused(std::span<Operation* const> operations, const NcclReduction& reduction, NcclType type);
  Status allgather();
  Status broadcast();
  Status alltoall();
  Status reducescatter();

  Status move(std::span<const Piece> pieces, DType dtype, double factor);  // counts are elements
  Status scale_on_host(const Piece& piece, DType dtype, double factor);
  Status wait_for_stream();
  template <class Body>
  Status group(size_t calls, const char* name, Body&& body);
  CudaStream stream() const { return job_.communicator->gpu->stream(job_.communicator->stream); }
  Gpu& gpu() const { return *job_.communicator->gpu; }

  const CudaApi& cuda_;
  const NcclApi& nccl_;
  NcclJob& job_;
  LaunchSettings settings_;
  Settle settle_;
};

// Where each tensor of a fused plan starts, at multiples of 16 bytes; the last one is the size of all.
std::vector<size_t> fused_offsets(std::span<Operation* const> operations);
// Bytes of the fusion buffer that a plan would like to have; 0: it needs none.
size_t wanted_buffer(const Plan& plan, std::span<Operation* const> operations, int32_t ranks);

}  // namespace hvd
