// The C ABI: converts and forwards. See include/horovod/horovod.h.
#include "horovod/horovod.h"

#include <cstring>
#include <exception>
#include <optional>
#include <string>

#include "engine/runtime.h"
#include "model/config.h"

namespace {

using namespace hvd;

thread_local std::string last_error;

hvd_code report(const Status& status) {
  if (!status.ok()) last_error = status.message();
  return static_cast<hvd_code>(status.code());
}

// Exceptions never cross the ABI.
template <class Body>
hvd_code guarded(Body&& body) {
  try {
    return report(body());
  } catch (const std::exception& problem) {
    return report({Code::unknown, problem.what()});
  }
}

// For functions that return a value or a negative code.
template <class Body>
int32_t guarded_value(Body&& body) {
  try {
    Result<int32_t> result = body();
    return result.ok() ? *result : -static_cast<int32_t>(report(result.status()));
  } catch (const std::exception& problem) {
    return -static_cast<int32_t>(report({Code::unknown, problem.what()}));
  }
}

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

Status convert(const hvd_tensor& tensor, TensorView& view) {
  if (tensor.struct_size < sizeof(hvd_tensor)) return {Code::invalid_argument, "hvd_tensor.struct_size is not set"};
  if (tensor.dtype < 0 || tensor.dtype > static_cast<int32_t>(kLastDType)) {
    return {Code::invalid_argument, "unknown dtype " + std::to_string(tensor.dtype)};
  }
  if (tensor.ndim < 0 || (tensor.ndim > 0 && tensor.shape == nullptr)) {
    return {Code::invalid_argument, "a tensor has no shape"};
  }
  view.data = static_cast<std::byte*>(tensor.data);
  view.dtype = static_cast<DType>(tensor.dtype);
  view.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  view.device = tensor.device;
  view.stream = tensor.stream;
  view.ready_event = tensor.ready_event;
  for (int64_t size : view.shape) {
    if (size < 0) return {Code::invalid_argument, "a dimension is negative"};
  }
  return {};
}

bool moves_data(Kind kind) { return kind <= Kind::reducescatter; }

Status convert(const hvd_request& request, Operation& operation) {
  if (request.struct_size < sizeof(hvd_request)) return {Code::invalid_argument, "hvd_request.struct_size is not set"};
  if (request.kind < 0 || request.kind > HVD_JOIN) return {Code::invalid_argument, "unknown kind of operation"};
  if (request.reduce_op < 0 || request.reduce_op > HVD_PRODUCT) return {Code::invalid_argument, "unknown reduce op"};
  operation.request.kind = static_cast<Kind>(request.kind);
  operation.request.process_set = request.process_set;
  if (!moves_data(operation.request.kind)) {
    operation.request.name = operation.request.kind == Kind::join ? "join.noname" : "barrier.noname";
    return {};
  }
  if (request.name == nullptr || *request.name == 0) return {Code::invalid_argument, "an operation needs a name"};
  if (Status status = convert(request.input, operation.input); !status.ok()) return status;
  operation.output.data = static_cast<std::byte*>(request.output.data);
  operation.output.dtype = operation.input.dtype;
  operation.output.shape = operation.input.shape;
  operation.output.device = operation.input.device;
  operation.output.stream = request.output.stream;
  operation.output.ready_event = request.output.ready_event;
  operation.request.name = request.name;
  operation.request.reduce_op = static_cast<ReduceOp>(request.reduce_op);
  operation.request.dtype = operation.input.dtype;
  operation.request.device = operation.input.device;
  operation.request.root_rank = operation.request.kind == Kind::broadcast ? request.root_rank : -1;
  operation.request.prescale = request.prescale_factor;
  operation.request.postscale = request.postscale_factor;
  operation.request.shape = operation.input.shape;
  if (request.splits != nullptr) operation.sent_rows.assign(request.splits, request.splits + request.splits_count);
  if (operation.request.kind == Kind::alltoall && request.splits != nullptr && request.splits_count == 0) {
    return {Code::invalid_argument, "alltoall: the splits are empty; pass one per rank, or none at all"};
  }
  return {};
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

void connect(std::vector<Operation>& operations, const hvd_submit_options& options) {
  if (options.allocate == nullptr) return;
  for (size_t i = 0; i < operations.size(); i++) {
    if (operations[i].output.data != nullptr) continue;
    operations[i].allocate = [allocate = options.allocate, context = options.allocate_context,
                              index = static_cast<int32_t>(i)](const TensorView& output) {
      return static_cast<std::byte*>(allocate(context, index, static_cast<int32_t>(output.dtype),
                                              static_cast<int32_t>(output.shape.size()), output.shape.data()));
    };
  }
}

std::function<void(const Task&)> callback_of(const hvd_submit_options& options) {
  if (options.done == nullptr) return nullptr;
  return [done = options.done, context = options.done_context](const Task& task) {
    done(context, task.handle, static_cast<hvd_code>(task.status.code()));
  };
}

int32_t copy_out(const std::vector<int32_t>& values, int32_t* out, int32_t capacity) {
  for (int32_t i = 0; i < capacity && i < static_cast<int32_t>(values.size()); i++)
    out[i] = values[static_cast<size_t>(i)];
  return static_cast<int32_t>(values.size());
}

}  // namespace

extern "C" {

uint32_t hvd_abi_version(void) { return HVD_ABI_VERSION; }
const char* hvd_version(void) { return HVD_VERSION; }
const char* hvd_last_error(void) { return last_error.c_str(); }

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
  return guarded([] {
    Runtime::instance().shutdown();
    return Status();
  });
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

int32_t hvd_process_set_ranks(int32_t id, int32_t* ranks, int32_t capacity) {
  return with_engine([&](Engine& engine) -> Result<int32_t> {
    auto members = engine.executor().members(id);
    if (!members) return Status(Code::invalid_argument, "there is no process set " + std::to_string(id));
    return copy_out(*members, ranks, capacity);
  });
}

int32_t hvd_process_set_size(int32_t id) { return hvd_process_set_ranks(id, nullptr, 0); }

int32_t hvd_process_set_rank(int32_t id) {
  return with_engine([&](Engine& engine) -> Result<int32_t> {
    auto members = engine.executor().members(id);
    if (!members) return Status(Code::invalid_argument, "there is no process set " + std::to_string(id));
    for (size_t i = 0; i < members->size(); i++) {
      if ((*members)[i] == engine.world().rank) return static_cast<int32_t>(i);
    }
    return Status(Code::invalid_argument, "this rank is not in process set " + std::to_string(id));
  });
}

int32_t hvd_process_set_ids(int32_t* ids, int32_t capacity) {
  return with_engine([&](Engine& engine) { return copy_out(engine.executor().process_set_ids(), ids, capacity); });
}

hvd_code hvd_submit(const hvd_request* requests, int32_t count, const hvd_submit_options* options, hvd_handle* handle) {
  return guarded([&]() -> Status {
    Runtime::Visit visit(Runtime::instance());
    if (visit.engine() == nullptr) return visit.why_none();
    if (count < 1) return {Code::invalid_argument, "a group needs at least one tensor"};
    TaskRef task = make_task(static_cast<size_t>(count));
    for (int32_t i = 0; i < count; i++) {
      Operation& operation = task->operations[static_cast<size_t>(i)];
      if (Status status = convert(requests[i], operation); !status.ok()) return status;
      if (count > 1 && !moves_data(operation.request.kind)) {
        return {Code::invalid_argument, "barrier and join cannot be part of a group"};
      }
    }
    hvd_submit_options chosen{};
    if (options != nullptr) std::memcpy(&chosen, options, std::min<size_t>(options->struct_size, sizeof chosen));
    connect(task->operations, chosen);
    task->on_done = callback_of(chosen);
    if (Status status = visit.engine()->submit(task, chosen.wait_follows != 0); !status.ok()) return status;
    *handle = task->handle;
    return {};
  });
}

int32_t hvd_poll(hvd_handle handle) {
  return guarded_value([&]() -> Result<int32_t> {
    auto task = find(Runtime::Visit(Runtime::instance()), handle);
    if (!task.ok()) return task.status();
    return (*task)->done.load(std::memory_order_acquire) ? 1 : 0;
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
      engine = visit.hold();
      if (engine == nullptr) return visit.why_none();
    }
    TimePoint until = seconds < 0 ? kNever : Clock::now() + hvd::seconds(seconds);
    if (engine->wait(task, until)) return task->status;
    return {Code::timed_out, "the operation goes on"};
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
    (void)operation.owned_output.release();  // the caller's now, for hvd_free
    return {};
  });
}

void hvd_free(void* data) { std::free(data); }

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

int32_t hvd_backend_built(const char* name) { return std::string_view(name) == "gloo" ? 1 : 0; }

}  // extern "C"
