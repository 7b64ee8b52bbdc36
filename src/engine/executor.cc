#include "engine/executor.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/clock.h"
#include "engine/outputs.h"

namespace hvd {
namespace {

constexpr Duration kDrainPatience = std::chrono::seconds(5);

bool changes_process_sets(const Plan& plan) { return manages_sets(plan.first().kind); }

}  // namespace

Executor::Executor(const Parts& parts, std::function<void(Task&)> on_done, std::function<void()> on_launched)
    : transport_(parts.transport),
      operations_(parts.operations),
      process_sets_(parts.process_sets),
      backends_(parts.backends),
      recorder_(parts.recorder),
      on_done_(std::move(on_done)),
      on_launched_(std::move(on_launched)) {}

Executor::Execution& Executor::take_execution() {
  for (const std::unique_ptr<Execution>& execution : executions_) {
    if (execution->is_under_way.load(std::memory_order_acquire) == 0) return *execution;
  }
  return *executions_.emplace_back(std::make_unique<Execution>());
}

void Executor::retire(Execution& execution) {
  execution.plan.tensors.clear();
  execution.places.clear();
  execution.operations.clear();
  execution.stand_ins.clear();
  execution.done.clear();
  execution.is_under_way.store(0, std::memory_order_release);
  execution.is_under_way.notify_all();
}

void Executor::drain() {
  TimePoint end = Clock::now() + kDrainPatience;
  while (backends_.is_busy() && !transport_.failed() && Clock::now() < end) {
    if (!backends_.poll()) ::sched_yield();
  }
  while (!backends_.is_device_idle() && !transport_.failed() && Clock::now() < end) ::sched_yield();
  backends_.give_up({Code::unknown, "Horovod has been shut down"});
  if (!backends_.is_device_idle()) backends_.give_up_device({Code::unknown, "Horovod has been shut down"});
  for (const std::unique_ptr<Execution>& execution : executions_) execution->is_under_way.wait(1);
}

Status Executor::run(Plan&& plan) {
  Execution& execution = take_execution();
  execution.is_under_way.store(1, std::memory_order_relaxed);
  execution.plan = std::move(plan);
  plans_++;
  if (!collect(execution)) {
    retire(execution);
    return {};
  }
  const Plan& agreed = execution.plan;
  Status status;
  if (agreed.error != Code::ok) {
    finish(execution, {agreed.error, agreed.error_text, transport_.placed(agreed.error_origin)});
  } else if (moves_data(agreed.first().kind)) {
    status = prepare(execution);
    if (status.ok()) {
      start(execution);
      return transport_.failure();
    }
    finish(execution, status);
  } else {
    if (changes_process_sets(agreed)) status = process_sets_.change(agreed);
    if (removes_set(agreed.first().kind) && backends_.device() != nullptr) {
      backends_.device()->forget(agreed.first().process_set);
    }
    for (Operation* operation : execution.operations) operation->result = agreed.result;
    finish(execution, status);
  }
  retire(execution);
  return status;
}

// Collects the plan's operations on this rank, in the plan's order.
bool Executor::collect(Execution& execution) {
  const Plan& plan = execution.plan;
  operations_.find(plan, execution.places);
  for (size_t i = 0; i < plan.tensors.size(); i++) {
    const Request& request = *plan.tensors[i];
    if (execution.places[i] != nullptr) {
      execution.operations.push_back(execution.places[i]->operation);
    } else if (plan.error == Code::ok && request.kind == Kind::allreduce &&
               process_sets_.is_member(request.process_set)) {
      stand_in(execution, request);  // this rank has joined; otherwise the set, or the error, concerns other ranks
    }
  }
  std::erase(execution.places, nullptr);
  return changes_process_sets(plan) || !execution.operations.empty();
}

void Executor::stand_in(Execution& execution, const Request& request) {
  TaskRef task = make_task(1);
  Operation& operation = task->operations.front();
  operation.request = request;
  if (request.device != kHost) {  // its backend makes the zeros
    operation.is_stand_in = true;
    operation.input = {.dtype = request.dtype, .shape = request.shape, .device = request.device};
    operation.output = operation.input;
    execution.operations.push_back(&operation);
    execution.stand_ins.push_back(std::move(task));
    return;
  }
  size_t bytes = bytes_of(request);
  operation.owned_output.reset(static_cast<std::byte*>(std::calloc(std::max<size_t>(bytes, 1), 1)));
  operation.input = {.data = operation.owned_output.get(), .dtype = request.dtype, .shape = request.shape};
  operation.output = operation.input;
  execution.operations.push_back(&operation);
  execution.stand_ins.push_back(std::move(task));
}

// Exchanges and allocates everything that a backend needs.
Status Executor::prepare(Execution& execution) {
  const Request& request = execution.plan.first();
  if (Status status = process_sets_.open_pair(request.process_set); !status.ok()) {
    transport_.abort(status);
    return status;
  }
  Collectives& collectives = process_sets_.collectives(request.process_set);
  collectives.describe(request.name.c_str());
  if (has_root(request.kind)) {
    int32_t position = *process_sets_.position(request.process_set, request.root_rank);
    for (Operation* operation : execution.operations) operation->root_position = position;
  }
  if (rows_may_differ(request.kind)) {
    if (Status status = exchange_rows(collectives, request.kind, execution.operations); !status.ok()) return status;
  }
  for (Operation* operation : execution.operations) {
    if (Status status = allocate_output(*operation, backends_.device()); !status.ok()) transport_.abort(status);
  }
  return transport_.failure();
}

void Executor::start(Execution& execution) {
  auto done = [this, &execution](const Status& status) {
    finish(execution, status);
    retire(execution);
  };
  Backend* backend = backends_.choose(execution.plan);
  const Request& request = execution.plan.first();
  if (backend == nullptr) {
    done({Code::unknown, fmt::format("no backend can execute {} of {} on device {}", name_of(request.kind),
                                     request.name, request.device)});
    return;
  }
  bool is_on_device = request.device != kHost && backend == backends_.device();
  std::string_view activity = is_on_device ? std::string_view() : backend->activity(request.kind);
  execution.recording = recorder_.start(execution.operations, activity, execution.plan, plans_);
  for (Operation* operation : execution.operations) operation->running = true;
  if (is_on_device) {
    backends_.device()->run_on_device(
        execution.plan, execution.operations, [this, &execution] { tell_launched(execution); }, done);
    return;
  }
  backend->run(execution.plan, execution.operations, done);
}

void Executor::tell_launched(Execution& execution) {
  for (const Task::Place* place : execution.places) place->task->launched.fetch_add(1, std::memory_order_seq_cst);
  on_launched_();
}

void Executor::finish(Execution& execution, const Status& status) {
  execution.recording.end(execution.places);
  operations_.finish(execution.places, status, execution.done);
  for (const TaskRef& task : execution.done) on_done_(*task);
}

}  // namespace hvd
