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

// A plan is one job, but for Adasum between hosts: there the hosts' averages go to host memory and back, and the thread
// that drives combines them in between.
enum class JobPart { whole, to_host, from_host };

// The end of an activity on the stream, for the timeline. The first mark of a job has no activity.
struct Mark {
  const char* activity;
  DeviceEventRef event;
};

struct NcclJob {
  const Plan* plan = nullptr;  // null: ends the communicators of process_set
  int32_t process_set = 0;
  JobPart part = JobPart::whole;
  std::byte* on_host = nullptr;  // of the two parts of Adasum
  std::vector<Operation*> operations;
  Communicator* communicator = nullptr;
  CudaPointer buffer = 0;  // of the fusion
  size_t buffer_bytes = 0;
  std::vector<DeviceEventRef> waits;  // besides those of the operations
  std::function<void()> launched;
  Backend::Done done;

  DeviceEventRef finished;
  std::vector<CudaPointer> scratch;  // freed at the end
  TimePoint handed_over_at{};
  TimePoint since{};         // when its limit began
  bool has_data = false;     // the operations' data have been computed; looked for where there is a limit
  bool is_recorded = false;  // in the timeline: then there are marks
  std::vector<Mark> marks;
  TimePoint init_begin{}, init_end{};  // of the communicator, if this job made it
  bool is_reported = false;            // as one that takes long
};

struct LaunchSettings {
  bool use_kernels = true;  // HOROVOD_BATCH_D2D_MEMCOPIES
  bool use_torus = false;   // allreduce inside the hosts and then between them, where all hosts have as many members
};

// Puts the work of a plan on its stream. `settle` is called after every call of NCCL that may go on in the background:
// it returns when nothing is in progress any more.
class NcclLaunch {
 public:
  using Settle = std::function<Status(NcclComm comm, NcclResult result, const char* call)>;
  NcclLaunch(const GpuLibraries& libraries, NcclJob& job, const LaunchSettings& settings, Settle settle)
      : cuda_(libraries.cuda), nccl_(libraries.nccl), job_(job), settings_(settings), settle_(std::move(settle)) {}

  Status run();

 private:
  Status allreduce();
  Status allreduce_one(Operation& operation, const NcclReduction& reduction, NcclType type, NcclComm comm);
  Status allreduce_fused(std::span<Operation* const> operations, const NcclReduction& reduction, NcclType type);
  Status reduce_buffer(size_t bytes, DType dtype, NcclOp op, NcclType type);
  Status adasum_to_host();
  Status adasum_from_host();
  Result<CudaPointer> zeros(const Operation& operation);
  size_t round() const;  // what the size of a fused buffer is a multiple of
  Status allgather();
  Status broadcast();
  Status alltoall();
  Status reducescatter();

  // Counts are elements.
  Status move(const char* activity, std::span<const Piece> pieces, DType dtype, double factor);
  Status move_pieces(std::span<const Piece> pieces, DType dtype, double factor);
  Status scale_on_host(const Piece& piece, DType dtype, double factor);
  Status wait_for_stream();
  Status mark(const char* activity);  // what was put on the stream since the last mark
  template <class Body>
  Status group(NcclComm comm, size_t calls, const char* name, Body&& body);
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
size_t wanted_buffer(const Plan& plan, std::span<Operation* const> operations, const Communicator& communicator,
                     bool use_torus);
// Whether a communicator reduces inside the hosts and then between them.
bool is_torus(const Communicator& communicator, bool use_torus);

}  // namespace hvd
