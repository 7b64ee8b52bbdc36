// Runs plans on this rank: finds the operations, exchanges sizes that only the other ranks know, allocates outputs, and
// starts the backend that accepts the plan. Thread rule: the thread that drives, except that a backend may finish a
// plan on its own thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "engine/backend_list.h"
#include "engine/operation_table.h"
#include "engine/process_set_table.h"
#include "engine/recorder.h"
#include "engine/task.h"
#include "model/plan.h"
#include "transport/transport.h"

namespace hvd {

class Executor {
 public:
  // Dependencies; all outlive the executor.
  struct Parts {
    Transport& transport;
    OperationTable& operations;
    ProcessSetTable& process_sets;
    BackendList& backends;
    const Recorder& recorder;
  };
  // `on_done` is called for every finished task, by the thread that finished it; `on_launched` when all work of a plan
  // is on a stream of its device.
  Executor(const Parts& parts, std::function<void(Task&)> on_done, std::function<void()> on_launched = nullptr);

  // Executes one plan, or passes it to a backend that finishes it later. Not ok: the world has failed.
  Status run(Plan&& plan);
  // Waits until no backend has a plan of this rank any more.
  void drain();

 private:
  // A plan in progress, with everything that must stay valid until its backend is done.
  struct Execution {
    Plan plan;
    std::vector<Task::Place*> places;    // of its tensors; null: this rank has no operation of that name
    std::vector<Operation*> operations;  // including stand-ins
    std::vector<TaskRef> stand_ins;      // zeros that a joined rank contributes
    std::vector<TaskRef> done;           // at the end of the plan
    Recorder::Execution recording;
    std::atomic<int32_t> is_under_way{0};  // set by the driver, cleared by the thread that finishes the plan
  };

  bool collect(Execution& execution);  // false: this rank does not take part in the plan
  void stand_in(Execution& execution, const Request& request);
  Status prepare(Execution& execution);
  void start(Execution& execution);
  void tell_launched(Execution& execution);
  void finish(Execution& execution, const Status& status);
  void retire(Execution& execution);
  Execution& take_execution();

  Transport& transport_;
  OperationTable& operations_;
  ProcessSetTable& process_sets_;
  BackendList& backends_;
  const Recorder& recorder_;
  std::function<void(Task&)> on_done_;
  std::function<void()> on_launched_;
  uint64_t plans_ = 0;                                  // of the world, also those in which this rank has no part
  std::vector<std::unique_ptr<Execution>> executions_;  // in progress, or ready to be reused
};

}  // namespace hvd
