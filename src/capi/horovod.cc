// The C ABI: converts and forwards. See include/horovod/horovod.h.
#include "horovod/horovod.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <span>
#include <string>

#include "backends/device_outputs.h"
#include "backends/nccl/arithmetic.h"
#include "backends/nccl/report.h"
#include "engine/gpu_agreement.h"
#include "engine/runtime.h"
#include "errors.h"
#include "model/config.h"
#include "model/process_sets.h"
#include "requests.h"

namespace {

using namespace hvd;

template <class Body>
int32_t with_engine(Body&& body) {
  return guarded_value([&]() -> Result<int32_t> {
    auto engine = Runtime::instance().engine();
    if (!engine.ok()) return engine.status();
    return body(**engine);
  });
}

Result<TaskRef> find(const Runtime::Visit& visit, hvd_handle handle) {
  if (visit.operations() == nullptr) return visit.why_none();
  TaskRef task = visit.operations()->find(handle);
  if (!task) return Status(Code::invalid_argument, "there is no handle " + std::to_string(handle));
  return task;
}

Result<TaskRef> find_done(hvd_handle handle) {
  auto task = find(Runtime::Visit(Runtime::instance()), handle);
  if (task.ok() && !(*task)->done.load(std::memory_order_acquire)) {
    return Status(Code::invalid_argument, "the operation of handle " + std::to_string(handle) + " is not done");
  }
  return task;
}

void fill(hvd_tensor* tensor, const TensorView& view) {
  *tensor = {.struct_size = sizeof(hvd_tensor),
             .dtype = static_cast<int32_t>(view.dtype),
             .device = view.device,
             .ndim = static_cast<int32_t>(view.shape.size()),
             .shape = view.shape.data(),
             .data = view.data,
             .stream = view.stream,
             .ready_event = view.ready_event};
}

// Several requests are a group.
Status submit(Engine& engine, std::span<const hvd_request> requests, const hvd_submit_options& options,
              bool wait_follows, hvd_handle* handle) {
  TaskRef task = make_task(requests.size());
  if (Status status = read_requests(requests, options, *task); !status.ok()) return status;
  if (Status status = engine.submit(task, wait_follows); !status.ok()) return status;
  *handle = task->handle;
  return {};
}

// The error names the request. No thread is woken: that is done once for all requests, so an exception must not skip
// it.
Status submit_one_of_many(Engine& engine, const hvd_request& request, const hvd_submit_options& options,
                          hvd_handle* handle) {
  Status status;
  try {
    status = submit(engine, std::span(&request, 1), options, true, handle);
  } catch (const std::exception& problem) {
    status = {Code::unknown, problem.what()};
  }
  if (status.ok()) return status;
  const bool named = request.struct_size >= sizeof request && request.name != nullptr;
  return {status.code(), (named ? request.name : std::string("a request")) + ": " + std::string(status.message()),
          status.origin()};
}

// Negative means no limit, as do values too large for the clock, and NaN.
TimePoint wait_limit(double seconds) {
  constexpr double kLongest = 1e9;
  return seconds >= 0 && seconds < kLongest ? Clock::now() + hvd::seconds(seconds) : kNever;
}

// The engine and the tasks of the handles; handles that are 0 have none.
Status find_all(std::span<const hvd_handle> handles, std::vector<TaskRef>& tasks, std::shared_ptr<Engine>& engine) {
  Runtime::Visit visit(Runtime::instance());
  bool all_done = true;
  for (hvd_handle handle : handles) {
    if (handle == 0) continue;
    auto task = find(visit, handle);
    if (!task.ok()) return task.status();
    all_done = all_done && (*task)->done.load(std::memory_order_acquire);
    tasks.push_back(std::move(*task));
  }
  engine = visit.hold_to_wait();
  return all_done || engine != nullptr ? Status() : visit.why_none();
}

// 1: `origin` is known and has been written; its texts are not copied.
int32_t give(const Origin& origin, hvd_failure* failure) {
  if (failure == nullptr || failure->struct_size < sizeof(hvd_failure) || origin.kind == OriginKind::none) return 0;
  failure->kind = static_cast<int32_t>(origin.kind);
  failure->rank = origin.rank;
  failure->is_own = Runtime::instance().is_own(origin) ? 1 : 0;
  failure->pid = origin.pid;
  failure->host = origin.host.c_str();
  failure->type = origin.type.c_str();
  failure->message = origin.text.c_str();
  return 1;
}

Result<Origin> read_failure(const hvd_failure* failure) {
  if (failure == nullptr || failure->struct_size < sizeof(hvd_failure))
    return Status(Code::invalid_argument, "hvd_failure.struct_size is not set");
  if (failure->kind <= 0 || failure->kind > static_cast<int32_t>(kLastOriginKind))
    return Status(Code::invalid_argument, "there is no such kind of failure");
  auto text = [](const char* given) { return given == nullptr ? std::string() : std::string(given); };
  return Origin{.kind = static_cast<OriginKind>(failure->kind),
                .rank = failure->rank,
                .host = text(failure->host),
                .pid = failure->pid,
                .type = text(failure->type),
                .text = text(failure->message)};
}

// The version of the NCCL that would be used, or whether a driver library exists.
Result<int32_t> gpu_built(std::string_view name) {
  auto config = config_from_environment();
  LibrarySearch found = find_libraries(library_places(config.ok() ? config.value() : Config()));
  if (name == "cuda") return !found.is_hip && !found.driver.empty() ? 1 : 0;
  if (name == "rocm") return found.is_hip && !found.driver.empty() ? 1 : 0;
  return probe_nccl_version(found);
}

GpuReport gpu_report() {
  auto config = config_from_environment();
  return describe_gpus(find_libraries(library_places(config.ok() ? config.value() : Config())));
}

int32_t copy_out(const std::vector<int32_t>& values, int32_t* out, int32_t capacity) {
  for (int32_t i = 0; i < capacity && i < static_cast<int32_t>(values.size()); i++)
    out[i] = values[static_cast<size_t>(i)];
  return static_cast<int32_t>(values.size());
}

Result<std::vector<int32_t>> members_of(const Engine& engine, int32_t process_set) {
  auto members = is_pair(process_set) ? std::nullopt : engine.process_sets().members(process_set);
  if (!members) {
    return Status(Code::invalid_argument, "there is no process set " + std::to_string(process_set));
  }
  return *members;
}

}  // namespace

extern "C" {

uint32_t hvd_abi_version(void) { return HVD_ABI_VERSION; }
const char* hvd_version(void) { return HVD_VERSION; }
const char* hvd_last_error(void) { return last_error(); }

int32_t hvd_last_failure(hvd_failure* failure) { return give(last_origin(), failure); }

int32_t hvd_world_failure(hvd_failure* failure) {
  thread_local Origin origin;
  origin = Runtime::instance().world_failure();
  return give(origin, failure);
}

hvd_code hvd_report_end(const hvd_failure* failure) {
  return guarded([&]() -> Status {
    auto origin = read_failure(failure);
    if (!origin.ok()) return origin.status();
    Runtime::instance().report_end(std::move(*origin), failure->is_own != 0);
    return {};
  });
}

hvd_code hvd_init(int32_t set_count, const int32_t* set_sizes, const int32_t* set_ranks) {
  return guarded([&] {
    std::vector<std::vector<int32_t>> sets;
    for (int32_t i = 0; i < set_count; i++) {
      sets.emplace_back(set_ranks, set_ranks + set_sizes[i]);
      set_ranks += set_sizes[i];
    }
    return Runtime::instance().init(sets);
  });
}

hvd_code hvd_shutdown(void) {
  return guarded([] { return Runtime::instance().shutdown(); });
}

int32_t hvd_is_initialized(void) { return Runtime::instance().is_initialized() ? 1 : 0; }

int32_t hvd_rank(void) {
  return with_engine([](Engine& engine) { return engine.world().rank; });
}
int32_t hvd_size(void) {
  return with_engine([](Engine& engine) { return engine.world().size; });
}
int32_t hvd_local_rank(void) {
  return with_engine([](Engine& engine) { return engine.world().local_rank; });
}
int32_t hvd_local_size(void) {
  return with_engine([](Engine& engine) { return engine.world().local_size; });
}
int32_t hvd_cross_rank(void) {
  return with_engine([](Engine& engine) { return engine.world().cross_rank; });
}
int32_t hvd_cross_size(void) {
  return with_engine([](Engine& engine) { return engine.world().cross_size; });
}
int32_t hvd_is_homogeneous(void) {
  return with_engine([](Engine& engine) { return engine.is_homogeneous() ? 1 : 0; });
}

int32_t hvd_add_process_set(const int32_t* ranks, int32_t count) {
  return guarded_value([&] { return Runtime::instance().add_process_set({ranks, ranks + count}); });
}

int32_t hvd_remove_process_set(int32_t id) {
  return guarded_value([&]() -> Result<int32_t> {
    auto removed = Runtime::instance().remove_process_set(id);
    if (!removed.ok()) return removed.status();
    return *removed ? 1 : 0;
  });
}

hvd_code hvd_form_process_set(const int32_t* ranks, int32_t count, hvd_handle* handle) {
  return guarded([&]() -> Status {
    auto formed = Runtime::instance().form_process_set({ranks, ranks + count});
    if (!formed.ok()) return formed.status();
    *handle = *formed;
    return {};
  });
}

hvd_code hvd_leave_process_set(int32_t id) {
  return guarded([&] { return Runtime::instance().leave_process_set(id); });
}

int32_t hvd_process_set_ranks(int32_t id, int32_t* ranks, int32_t capacity) {
  return with_engine([&](Engine& engine) -> Result<int32_t> {
    auto members = members_of(engine, id);
    if (!members.ok()) return members.status();
    return copy_out(*members, ranks, capacity);
  });
}

int32_t hvd_process_set_size(int32_t id) { return hvd_process_set_ranks(id, nullptr, 0); }

int32_t hvd_process_set_rank(int32_t id) {
  return with_engine([&](Engine& engine) -> Result<int32_t> {
    auto members = members_of(engine, id);
    if (!members.ok()) return members.status();
    for (size_t i = 0; i < members->size(); i++) {
      if ((*members)[i] == engine.world().rank) return static_cast<int32_t>(i);
    }
    return Status(Code::invalid_argument, "this rank is not in process set " + std::to_string(id));
  });
}

int32_t hvd_process_set_ids(int32_t* ids, int32_t capacity) {
  return with_engine([&](Engine& engine) { return copy_out(engine.process_sets().ids(), ids, capacity); });
}

hvd_code hvd_submit(const hvd_request* requests, int32_t count, const hvd_submit_options* options, hvd_handle* handle) {
  return guarded([&]() -> Status {
    Runtime::Visit visit(Runtime::instance());
    if (visit.engine() == nullptr) return visit.why_none();
    if (visit.engine()->device() != nullptr) visit.engine()->device()->begin_call();
    if (count < 1) return {Code::invalid_argument, "a group needs at least one tensor"};
    const hvd_submit_options chosen = read_options(options);
    Status status = submit(*visit.engine(), std::span(requests, static_cast<size_t>(count)), chosen,
                           chosen.wait_follows != 0, handle);
    if (status.ok() && chosen.wait_follows == 2) visit.engine()->wake_for_new(true);
    return status;
  });
}

hvd_code hvd_submit_many(const hvd_request* requests, int32_t count, const hvd_submit_options* options,
                         hvd_handle* handles) {
  if (count > 0) std::fill_n(handles, count, 0);
  return guarded([&]() -> Status {
    Runtime::Visit visit(Runtime::instance());
    if (visit.engine() == nullptr) return visit.why_none();
    if (visit.engine()->device() != nullptr) visit.engine()->device()->begin_call();
    const hvd_submit_options chosen = read_options(options);
    Status status;
    for (int32_t i = 0; i < count && status.ok(); i++) {
      status = submit_one_of_many(*visit.engine(), requests[i], chosen, &handles[i]);
    }
    if (chosen.wait_follows != 1) visit.engine()->wake_for_new(chosen.wait_follows == 2);
    return status;
  });
}

int32_t hvd_poll(hvd_handle handle) {
  return guarded_value([&]() -> Result<int32_t> {
    auto task = find(Runtime::Visit(Runtime::instance()), handle);
    if (!task.ok()) return task.status();
    return (*task)->done.load(std::memory_order_acquire) ? 1 : 0;
  });
}

hvd_code hvd_when_done(hvd_handle handle, hvd_done done, void* context) {
  return guarded([&]() -> Status {
    TaskRef task;
    {
      auto found = find(Runtime::Visit(Runtime::instance()), handle);
      if (!found.ok()) return found.status();
      task = std::move(*found);
    }
    using Listener = Task::Listener;
    auto call = [done, context](const Task& ended) {
      done(context, ended.handle, static_cast<hvd_code>(ended.status.code()));
    };
    Listener before = Listener::none;
    if (task->listener.compare_exchange_strong(before, Listener::being_attached)) {
      task->late_listener = call;
      before = Listener::being_attached;
      if (task->listener.compare_exchange_strong(before, Listener::attached)) return {};
    } else if (before != Listener::over) {
      return {Code::invalid_argument, "this handle has a callback already"};
    }
    call(*task);
    return {};
  });
}

hvd_code hvd_wait(hvd_handle handle, double seconds) {
  return guarded([&]() -> Status {
    TaskRef task;
    std::shared_ptr<Engine> engine;
    {
      Runtime::Visit visit(Runtime::instance());
      auto found = find(visit, handle);
      if (!found.ok()) return found.status();
      task = std::move(*found);
      if (task->done.load(std::memory_order_acquire)) return task->status;
      engine = visit.hold_to_wait();
      if (engine == nullptr) return visit.why_none();
    }
    TimePoint until = wait_limit(seconds);
    if (engine->wait(task, until)) return task->status;
    return {Code::timed_out, "the operation continues"};
  });
}

hvd_code hvd_wait_many(const hvd_handle* handles, int32_t count, double seconds) {
  return guarded([&]() -> Status {
    std::vector<TaskRef> tasks;
    std::shared_ptr<Engine> engine;
    if (count < 1) return {};
    if (Status status = find_all(std::span(handles, static_cast<size_t>(count)), tasks, engine); !status.ok())
      return status;
    TimePoint until = wait_limit(seconds);
    // The last one first: it usually finishes last, and then no further wait is needed.
    for (auto task = tasks.rbegin(); task != tasks.rend(); ++task) {
      if ((*task)->done.load(std::memory_order_acquire)) continue;
      if (!engine->wait(*task, until)) return {Code::timed_out, "the operations continue"};
    }
    for (const TaskRef& task : tasks) {
      if (!task->status.ok()) return task->status;
    }
    return {};
  });
}

hvd_code hvd_result(hvd_handle handle, int32_t index, hvd_tensor* output) {
  return guarded([&]() -> Status {
    auto task = find_done(handle);
    if (!task.ok()) return task.status();
    std::vector<Operation>& operations = (*task)->operations;
    if (index < 0 || index >= static_cast<int32_t>(operations.size()))
      return {Code::invalid_argument, "no such tensor"};
    fill(output, operations[static_cast<size_t>(index)].output);
    return {};
  });
}

hvd_code hvd_take_result(hvd_handle handle, int32_t index, hvd_tensor* output) {
  hvd_code code = hvd_result(handle, index, output);
  if (code != HVD_OK) return code;
  return guarded([&]() -> Status {
    auto task = find_done(handle);
    if (!task.ok()) return task.status();
    Operation& operation = (*task)->operations[static_cast<size_t>(index)];
    if (operation.output.bytes() > 0 && operation.owned_output == nullptr) {
      return {Code::invalid_argument, "the output's memory does not belong to the engine"};
    }
    DeviceOutputs::instance().take(operation.owned_output.release());  // now owned by the caller, for hvd_free
    return {};
  });
}

void hvd_free(void* data) {
  if (!DeviceOutputs::instance().free(static_cast<std::byte*>(data))) std::free(data);
}

hvd_code hvd_wait_on_stream(hvd_handle handle, void* stream, double seconds) {
  return guarded([&]() -> Status {
    TaskRef task;
    std::shared_ptr<Engine> engine;
    {
      Runtime::Visit visit(Runtime::instance());
      auto found = find(visit, handle);
      if (!found.ok()) return found.status();
      task = std::move(*found);
      if (task->done.load(std::memory_order_acquire)) return task->status;
      engine = visit.hold_to_wait();
      if (engine == nullptr) return visit.why_none();
    }
    if (!engine->wait_launched(task, wait_limit(seconds))) return {Code::timed_out, "the operation continues"};
    if (task->done.load(std::memory_order_acquire)) return task->status;
    for (const Operation& operation : task->operations) {
      if (Status status = engine->device()->order_stream(operation, stream); !status.ok()) return status;
    }
    return {};
  });
}

int32_t hvd_device_accepts(int32_t kind, int32_t dtype, int32_t reduce_op) {
  return with_engine([&](Engine& engine) -> Result<int32_t> {
    if (engine.device() == nullptr) return 0;
    Request request{.kind = static_cast<Kind>(kind),
                    .reduce_op = static_cast<ReduceOp>(reduce_op),
                    .dtype = static_cast<DType>(dtype)};
    return can_use_nccl(request) ? 1 : 0;
  });
}

int32_t hvd_completes_on_stream(int32_t of_gradients) {
  return with_engine([&](Engine& engine) -> Result<int32_t> {
    const Config& config = engine.config();
    if (engine.device() == nullptr || config.elastic) return 0;
    return config.async_completion.value_or(of_gradients != 0) ? 1 : 0;
  });
}

int32_t hvd_received_splits(hvd_handle handle, int32_t index, int32_t* splits, int32_t capacity) {
  return guarded_value([&]() -> Result<int32_t> {
    auto task = find_done(handle);
    if (!task.ok()) return task.status();
    std::vector<Operation>& operations = (*task)->operations;
    if (index < 0 || index >= static_cast<int32_t>(operations.size())) {
      return Status(Code::invalid_argument, "no such tensor");
    }
    const std::vector<int64_t>& rows = operations[static_cast<size_t>(index)].received_rows;
    return copy_out({rows.begin(), rows.end()}, splits, capacity);
  });
}

int32_t hvd_result_value(hvd_handle handle) {
  return guarded_value([&]() -> Result<int32_t> {
    auto task = find_done(handle);
    if (!task.ok()) return task.status();
    return (*task)->operations.front().result;
  });
}

void hvd_release(hvd_handle handle) {
  Runtime::Visit visit(Runtime::instance());
  if (visit.operations() != nullptr) visit.operations()->release(handle);
}

void hvd_release_many(const hvd_handle* handles, int32_t count) {
  Runtime::Visit visit(Runtime::instance());
  if (visit.operations() == nullptr) return;
  for (int32_t i = 0; i < count; i++) {
    if (handles[i] != 0) visit.operations()->release(handles[i]);
  }
}

hvd_code hvd_mpi_load(const char* library) {
  return guarded([&] { return Runtime::instance().load_mpi(library == nullptr ? "" : library); });
}

const char* hvd_mpi_version(void) {
  thread_local std::string text;
  text = Runtime::instance().mpi_version();
  return text.c_str();
}

hvd_code hvd_mpi_use(const void* communicator, const int32_t* ranks, int32_t count) {
  return guarded([&] { return Runtime::instance().use_mpi(communicator, {ranks, ranks + count}); });
}

int32_t hvd_mpi_expected(void) { return static_cast<int32_t>(expected_mpi_from_environment()); }

hvd_code hvd_mpi_offer(const char* obstacle, const int32_t* ranks, int32_t count) {
  return guarded([&] {
    return Runtime::instance().offer_mpi(obstacle == nullptr ? "" : obstacle, {ranks, ranks + count});
  });
}

const char* hvd_mpi_obstacle(void) {
  thread_local std::string text;
  text = Runtime::instance().mpi_obstacle();
  return text.c_str();
}

int32_t hvd_mpi_enabled(void) { return Runtime::instance().mpi_enabled() ? 1 : 0; }
int32_t hvd_gloo_enabled(void) { return Runtime::instance().gloo_enabled() ? 1 : 0; }
int32_t hvd_mpi_threads_supported(void) { return Runtime::instance().mpi_threads_supported() ? 1 : 0; }

void hvd_mpi_end(int32_t failed) {
  (void)guarded([&]() -> Status {
    Runtime::instance().end_mpi(failed != 0);
    return {};
  });
}

hvd_code hvd_elastic_next_event(double seconds, hvd_elastic_event* event) {
  return guarded([&]() -> Status {
    if (event == nullptr || event->struct_size < sizeof(hvd_elastic_event))
      return {Code::invalid_argument, "hvd_elastic_event.struct_size is not set"};
    auto membership = Runtime::instance().membership();
    if (!membership.ok()) return membership.status();
    auto change = (*membership)->next_change(wait_limit(seconds));
    if (!change.ok()) return change.status();
    event->change = static_cast<int32_t>(change->change);
    event->timestamp = change->timestamp;
    return {};
  });
}

void hvd_elastic_stop_waiting(void) {
  (void)guarded([]() -> Status {
    if (auto membership = Runtime::instance().current_membership()) membership->stop_waiting();
    return {};
  });
}

hvd_code hvd_elastic_leave(const char* reason) {
  return guarded([&]() -> Status {
    auto membership = Runtime::instance().membership();
    if (!membership.ok()) return membership.status();
    return (*membership)->leave(reason == nullptr ? "" : reason);
  });
}

hvd_code hvd_start_timeline(const char* path, int32_t mark_cycles) {
  return guarded([&]() -> Status {
    auto engine = Runtime::instance().engine();
    if (!engine.ok()) return engine.status();
    return (*engine)->start_timeline(path, mark_cycles != 0);
  });
}

hvd_code hvd_stop_timeline(void) {
  return guarded([&]() -> Status {
    auto engine = Runtime::instance().engine();
    if (!engine.ok()) return engine.status();
    return (*engine)->stop_timeline();
  });
}

const char* hvd_knobs_json(void) {
  static const std::string* text = new std::string(hvd::knobs_json());
  return text->c_str();
}

int32_t hvd_describe_gpus(char* text, int32_t capacity) {
  return guarded_value([&]() -> Result<int32_t> {
    GpuReport report = gpu_report();
    if (text != nullptr && capacity > 0) {
      size_t length = std::min(report.text.size(), static_cast<size_t>(capacity) - 1);
      std::memcpy(text, report.text.data(), length);
      text[length] = 0;
    }
    return report.is_usable ? 1 : 0;
  });
}

int32_t hvd_backend_built(const char* name) {
  std::string_view wanted = name;
  if (wanted == "nccl" || wanted == "cuda" || wanted == "rocm") return guarded_value([&] { return gpu_built(wanted); });
  return wanted == "gloo" || (wanted == "mpi" && !Runtime::instance().mpi_version().empty()) ? 1 : 0;
}

}  // extern "C"
