// A backend executes plans. The built-in one (cpu/) works on host memory; others (MPI, NCCL, ...) are separate
// libraries, named by HOROVOD_BACKENDS, and are asked first. The choice is per plan: the first backend that accepts it
// runs it. accepts() must be a pure function of the plan, because every rank chooses separately and all must choose the
// same.
// Thread rule: accepts() and run() are called by the thread that drives, one call at a time.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "base/status.h"
#include "base/wire.h"
#include "model/operation.h"
#include "model/plan.h"
#include "model/world.h"

namespace hvd {

class Backend {
 public:
  using Done = std::function<void(Status)>;

  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view activity(Kind kind) const = 0;  // its name in the timeline: "GLOO_ALLREDUCE"
  virtual bool accepts(const Plan& plan) const = 0;
  // Executes the plan on this rank's operations, which match plan.tensors one by one and stay valid until `done`.
  // Outputs are allocated and received_rows are known. Calls `done` exactly once: before returning, or later from any
  // thread. Later plans may start before this one is done; a backend keeps their order on its streams.
  virtual void run(const Plan& plan, std::span<Operation* const> operations, Done done) = 0;
};

// A backend whose plans progress only while they are polled: MPI has no descriptor to sleep on and no callbacks.
// The driving thread polls it as long as it is busy.
class PolledBackend : public Backend {
 public:
  virtual bool is_busy() const = 0;  // some plan is not done
  virtual bool poll() = 0;           // advances pending plans; true: a plan was done
  // Pending plans cannot complete: ends them with this error, and never polls them again.
  virtual void give_up(const Status& status) = 0;
};

// A backend for tensors in the memory of accelerators. It orders its work on the device: the driving thread hands a
// plan over and continues. A plan is *launched* when all its work is on a stream, and done when the device has
// finished.
class DeviceBackend : public Backend {
 public:
  // The calling thread begins a call that submits operations; they share an event per stream.
  virtual void begin_call() = 0;
  // In the submitting thread: records when the data of the operation are ready. Not ok: it must not be submitted.
  virtual Status on_submit(Operation& operation) = 0;
  // As run(); calls `launched` before `done`, unless the plan fails.
  virtual void run_on_device(const Plan& plan, std::span<Operation* const> operations, std::function<void()> launched,
                             Done done) = 0;
  // Makes the stream of the caller wait until the launched operation is done. Any thread.
  virtual Status order_stream(const Operation& operation, void* stream) = 0;
  // Memory for an output that the caller does not allocate; DeviceOutputs frees it. For the thread that drives.
  virtual Result<std::byte*> allocate(Device device, size_t bytes) = 0;
  // Where this rank contributes zeros after join(device); kHost: the device of its last operation.
  virtual void set_join_device(Device device) = 0;
  // A process set is removed on all ranks.
  virtual void forget(int32_t process_set) = 0;
  // Pending plans cannot complete: ends them with this error, in the background. Any thread.
  virtual void give_up(const Status& status) = 0;
  virtual bool is_idle() const = 0;  // no plan is pending
};

// The context for a backend library.
struct BackendContext {
  World world;
  // Members of a process set, as ranks of the world.
  std::function<std::vector<int32_t>(int32_t process_set)> members;
  // Collective among a process set, callable inside run(): gathers blocks of equal size in set order. For bootstrap,
  // such as the unique id of a communicator.
  std::function<Status(int32_t process_set, ByteView mine, std::byte* all)> exchange;
  // Collective among a process set, callable inside run(): Adasum of one tensor in host memory, in place.
  std::function<Status(int32_t process_set, std::byte* data, size_t count, DType dtype, double prescale,
                       double postscale)>
      adasum = {};
  // To be called inside run() before it waits for anything but the two above: a rank that sleeps may not have been
  // woken yet to read what this one has sent.
  std::function<void()> wake_others = {};
  // Why the world has failed; ok: it has not. Any thread.
  std::function<Status()> failure = {};
  // Fails the world on all ranks. Any thread.
  std::function<void(const Status&)> fail = {};
  // Whether there is a timeline, for which a DeviceBackend records Operation::activities. Any thread.
  std::function<bool()> is_recording = {};
};

inline constexpr const char* kBackendEntry = "hvd_backend_v1";
using BackendEntry = Backend* (*)(const BackendContext& context);  // exported by a backend library; null: not usable

}  // namespace hvd
