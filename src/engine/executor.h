// Executes plans on this rank: finds the operations, learns sizes that only the other ranks know, allocates outputs,
// chooses the backend and runs it. Also keeps the process sets and their channels.
// Thread rule: the thread that drives, except the look-ups marked so.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/cpu_backend.h"
#include "collectives/world_collectives.h"
#include "engine/operation_table.h"
#include "engine/timeline.h"
#include "model/config.h"
#include "model/plan.h"
#include "model/process_sets.h"
#include "model/world.h"
#include "negotiation/carried.h"
#include "transport/transport.h"

namespace hvd {

// Makes the backend that this world asks before all others. It may use what it is given for as long as it lives.
using MakePolled = std::function<Result<std::unique_ptr<PolledBackend>>(const BackendContext&, Transport&)>;

class Executor final : public CarriedListener {
 public:
  // `on_done` is told of every task that is done, from the thread that finished it. `make_polled`: see engine.h.
  static Result<std::unique_ptr<Executor>> create(const World& world, const Config& config, Transport& transport,
                                                  OperationTable& operations, std::function<void(Task&)> on_done,
                                                  const MakePolled& make_polled = nullptr);

  // Executes one plan. Not ok: the world has failed.
  Status run(Plan&& plan);
  void apply(const Tuning& tuning);
  // Small allreduces may be carried (negotiation/carried.h): at all, and this one.
  bool carries() const { return carry_limit_ > 0; }
  bool can_carry(const Operation& operation) const;
  void on_carried(const Request& request, ByteView theirs) override;
  // Plans of a backend that has to be polled: whether there are any; looks at them; gives them up.
  bool is_busy() const { return polled_ != nullptr && polled_->is_busy(); }
  bool poll() { return is_busy() && polled_->poll(); }
  void give_up(const Status& status);
  // Waits until no backend holds a plan of this rank any more.
  void drain();

  void set_timeline(std::shared_ptr<Timeline> timeline);  // any thread; null: none
  std::shared_ptr<Timeline> timeline() const;             // any thread
  bool has_timeline() const { return has_timeline_.load(std::memory_order_relaxed); }

  // Any thread.
  struct Membership {
    int32_t size = 0;       // 0: there is no such set
    int32_t position = -1;  // -1: this rank is not in it
    uint64_t serial = 0;    // see ProcessSets::serial()
  };
  Membership membership(int32_t process_set) const;
  bool contains(int32_t process_set, int32_t rank) const;
  std::optional<std::vector<int32_t>> members(int32_t process_set) const;
  std::vector<int32_t> process_set_ids() const;

 private:
  // A plan under way: what must stay until its backend is done.
  struct Execution {
    Plan plan;
    std::vector<Task::Place*> places;    // of its tensors; null: this rank has none of that name
    std::vector<Operation*> operations;  // those, and the stand-ins
    std::vector<TaskRef> stand_ins;      // zeros that a joined rank contributes
    std::vector<TaskRef> done;           // by the end of the plan
    std::shared_ptr<Timeline> timeline;
    std::atomic<int32_t> is_under_way{0};  // set by the driver, cleared by the thread that finishes it
  };

  Executor(const World& world, Transport& transport, OperationTable& operations, std::function<void(Task&)> on_done);

  bool collect(Execution& execution);  // false: this rank has no part in the plan
  void stand_in(Execution& execution, const Request& request);
  Status change_process_sets(Execution& execution);
  Status prepare(Execution& execution);
  void start(Execution& execution);
  void finish(Execution& execution, const Status& status);
  void retire(Execution& execution);
  Execution& take_execution();
  Status open_process_set(int32_t id, const std::vector<int32_t>& ranks);
  std::vector<int32_t> local_members(const std::vector<int32_t>& ranks) const;
  Backend* backend_for(const Plan& plan);
  bool is_member(int32_t process_set) const { return collectives_.contains(process_set); }
  Collectives& collectives_of(int32_t process_set) { return *collectives_.at(process_set); }

  World world_;
  Transport& transport_;
  OperationTable& operations_;
  std::function<void(Task&)> on_done_;
  std::map<int32_t, std::unique_ptr<Collectives>> collectives_;
  std::vector<std::unique_ptr<Backend>> backends_;  // asked in order; the built-in one is last
  CpuBackend* cpu_ = nullptr;                       // that one
  PolledBackend* polled_ = nullptr;                 // the one of this kind; null: none
  size_t carry_limit_ = 0;
  std::vector<TaskRef> carried_;  // done by on_carried(); kept so that it need not allocate
  size_t one_shot_limit_;
  WorldSettings world_settings_;
  std::vector<std::unique_ptr<Execution>> executions_;  // under way, or ready for another plan

  mutable std::mutex mutex_;  // guards what follows
  ProcessSets process_sets_;
  std::shared_ptr<Timeline> timeline_;
  std::atomic<bool> has_timeline_{false};  // so that the usual case needs no lock
};

}  // namespace hvd
