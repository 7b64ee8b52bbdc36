// Moves data with MPI's own collectives (HOROVOD_CPU_OPERATIONS=mpi): for networks that only MPI supports. None of them
// blocks, so the ranks can agree on further plans meanwhile. Process sets become communicators on first use. Adasum,
// and unsupported combinations, are left to the built-in backend.
// Thread rule: the thread that drives.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/mpi/mpi_execution.h"
#include "backends/mpi/mpi_session.h"

namespace hvd {

struct MpiBackendSettings {
  size_t most = size_t{1} << 30;  // elements, or bytes, in one call of MPI
  Duration stall_warning{};       // a plan that takes longer is logged; 0: never
  Duration timeout{};             // one that takes longer fails the world; 0: never
  Duration start_timeout{};       // for the communicator of a process set, after its ranks have agreed to create it
  std::string rank_name;          // of this rank, for reports
  std::function<void(const Status&)> fail_world;
};

class MpiBackend final : public PolledBackend {
 public:
  MpiBackend(MpiSession& session, const MpiComm& world, BackendContext context, MpiBackendSettings settings);

  std::string_view name() const override { return "mpi"; }
  std::string_view activity(Kind kind) const override;
  bool accepts(const Plan& plan) const override;
  void run(const Plan& plan, std::span<Operation* const> operations, Done done) override;
  bool is_busy() const override { return !under_way_.empty(); }
  bool poll() override;
  void give_up(const Status& status) override;

 private:
  Result<const MpiComm*> comm_of(int32_t process_set);
  std::unique_ptr<MpiExecution> take_spare();
  void watch(TimePoint now);
  void fail(const Status& status);

  MpiSession& session_;
  const MpiComm& world_;
  BackendContext context_;
  MpiBackendSettings settings_;
  std::map<std::vector<int32_t>, const MpiComm*> comms_;  // by members
  std::deque<std::unique_ptr<MpiExecution>> under_way_;   // in the order of plans
  std::vector<std::unique_ptr<MpiExecution>> spares_;
  uint32_t polls_ = 0;
  TimePoint warned_{};  // when the oldest execution was last reported
};

}  // namespace hvd
