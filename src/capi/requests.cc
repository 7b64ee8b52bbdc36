#include "requests.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace hvd {
namespace {

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

// Kinds have the same numbers in the C ABI, except for those of point-to-point.
bool read_kind(int32_t number, Operation& operation) {
  if (number < 0 || number > HVD_PROBE || (number > HVD_JOIN && number < HVD_REDUCE)) return false;
  if (number == HVD_SEND || number == HVD_RECEIVE) {
    operation.request.kind = Kind::transfer;
  } else {
    operation.request.kind = number == HVD_PROBE ? Kind::probe : static_cast<Kind>(number);
  }
  return true;
}

Status convert(const hvd_request& request, Operation& operation) {
  if (request.struct_size < sizeof(hvd_request)) return {Code::invalid_argument, "hvd_request.struct_size is not set"};
  if (!read_kind(request.kind, operation)) return {Code::invalid_argument, "unknown kind of operation"};
  if (request.reduce_op < 0 || request.reduce_op > HVD_BIT_XOR) return {Code::invalid_argument, "unknown reduce op"};
  operation.request.process_set = request.process_set;
  if (request.process_set < 0) return {Code::invalid_argument, "the id of a process set is not negative"};
  if (operation.request.kind == Kind::probe) {
    if (request.name == nullptr || *request.name == 0) return {Code::invalid_argument, "a probe needs a name"};
    operation.request.name = request.name;
    return {};
  }
  if (!moves_data(operation.request.kind)) {
    operation.request.name = operation.request.kind == Kind::join ? "join.noname" : "barrier.noname";
    if (request.input.struct_size >= sizeof(hvd_tensor)) operation.input.device = request.input.device;
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
  operation.request.root_rank = has_root(operation.request.kind) ? request.root_rank : -1;
  if (operation.request.kind == Kind::transfer) {
    operation.peer = request.root_rank;
    if (request.kind == HVD_SEND) operation.request.root_rank = Operation::kSelf;
  }
  if (rows_may_differ(operation.request.kind) && request.output.data != nullptr) {
    TensorView room;
    if (Status status = convert(request.output, room); !status.ok()) return status;
    operation.output_room = room.bytes();
  }
  operation.request.prescale = request.prescale_factor;
  operation.request.postscale = request.postscale_factor;
  operation.request.shape = operation.input.shape;
  if (request.splits != nullptr) operation.sent_rows.assign(request.splits, request.splits + request.splits_count);
  if (operation.request.kind == Kind::alltoall && request.splits != nullptr && request.splits_count == 0) {
    return {Code::invalid_argument, "alltoall: the splits are empty; pass one per rank, or none at all"};
  }
  return {};
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

}  // namespace

Status read_requests(std::span<const hvd_request> requests, const hvd_submit_options& options, Task& task) {
  for (size_t i = 0; i < requests.size(); i++) {
    Operation& operation = task.operations[i];
    if (Status status = convert(requests[i], operation); !status.ok()) return status;
    if (requests.size() > 1 && !moves_data(operation.request.kind)) {
      return {Code::invalid_argument, "barrier and join cannot be part of a group"};
    }
  }
  connect(task.operations, options);
  task.on_done = callback_of(options);
  return {};
}

hvd_submit_options read_options(const hvd_submit_options* options) {
  hvd_submit_options chosen{};
  if (options != nullptr) std::memcpy(&chosen, options, std::min<size_t>(options->struct_size, sizeof chosen));
  return chosen;
}

}  // namespace hvd
