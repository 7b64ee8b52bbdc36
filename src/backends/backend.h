// A backend executes plans. The built-in one (cpu/) works on host memory; others (MPI, NCCL, ...) live in libraries of
// their own, named by HOROVOD_BACKENDS, and are asked first. The choice is per plan: the first that accepts runs it.
// accepts() must be a pure function of the plan, because every rank chooses for itself and all must choose alike.
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
  virtual std::string_view activity(Kind kind) const = 0;  // what the timeline shows while it runs: "GLOO_ALLREDUCE"
  virtual bool accepts(const Plan& plan) const = 0;
  // Executes the plan on this rank's operations, which match plan.tensors one by one and stay valid until `done`.
  // Outputs are allocated and received_rows are known. Calls `done` exactly once: before returning, or later from any
  // thread. Plans handed over later may start before this one is done; a backend keeps their order on its streams.
  virtual void run(const Plan& plan, std::span<Operation* const> operations, Done done) = 0;
};

// A backend whose plans progress only while they are polled: MPI has no descriptor to sleep on and no callbacks.
// The thread that drives looks again and again as long as it is busy.
class PolledBackend : public Backend {
 public:
  virtual bool is_busy() const = 0;  // some plan is not done
  virtual bool poll() = 0;           // moves what is under way; true: some plan was done by it
  // Nothing more will come of what is under way: it is done with this error, and never looked at again.
  virtual void give_up(const Status& status) = 0;
};

// What a backend library is given.
struct BackendContext {
  World world;
  // Members of a process set, as ranks of the world.
  std::function<std::vector<int32_t>(int32_t process_set)> members;
  // Collective among a process set, callable inside run(): gathers blocks of equal size in set order. For bootstrap,
  // such as the unique id of a communicator.
  std::function<Status(int32_t process_set, ByteView mine, std::byte* all)> exchange;
};

inline constexpr const char* kBackendEntry = "hvd_backend_v1";
using BackendEntry = Backend* (*)(const BackendContext& context);  // what a backend library exports; null: not usable

}  // namespace hvd
