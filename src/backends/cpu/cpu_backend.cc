#include "backends/cpu/cpu_backend.h"

#include <fmt/core.h>

#include <algorithm>

#include "model/share.h"

namespace hvd {
namespace {

Result<Reduction> reduction_of(const Request& request, int32_t ranks) {
  Reduction reduction{
      .dtype = request.dtype, .op = request.reduce_op, .prescale = request.prescale, .factor = request.postscale};
  if (request.reduce_op == ReduceOp::average) {
    reduction.op = ReduceOp::sum;
    reduction.factor /= ranks;
  }
  bool scales = reduction.prescale != 1.0 || reduction.factor != 1.0;
  if (!can_reduce(reduction.dtype, reduction.op)) {
    return Status(Code::unknown, fmt::format("{} of {} is not supported (tensor {})", name_of(request.reduce_op),
                                             name_of(request.dtype), request.name));
  }
  if (scales && !can_scale(reduction.dtype)) {
    return Status(Code::unknown,
                  fmt::format("{} tensors cannot be averaged or scaled (tensor {}); use Sum, or convert them first",
                              name_of(request.dtype), request.name));
  }
  return reduction;
}

}  // namespace

// The names under which readers of timelines know the built-in data plane.
std::string_view CpuBackend::activity(Kind kind) const {
  switch (kind) {
    case Kind::allreduce: return "GLOO_ALLREDUCE";
    case Kind::allgather: return "GLOO_ALLGATHER";
    case Kind::broadcast: return "GLOO_BCAST";
    case Kind::alltoall: return "MPI_ALLTOALL";
    case Kind::reducescatter: return "GLOO_REDUCESCATTER";
    case Kind::reduce: return "GLOO_REDUCE";
    case Kind::gather: return "GLOO_GATHER";
    case Kind::scatter: return "GLOO_SCATTER";
    case Kind::transfer: return "GLOO_SEND_RECV";
    case Kind::barrier:
    case Kind::join:
    case Kind::add_process_set:
    case Kind::remove_process_set:
    case Kind::probe:
    case Kind::form_process_set:
    case Kind::leave_process_set: break;
  }
  return "NONE";
}

void CpuBackend::run(const Plan& plan, std::span<Operation* const> operations, Done done) {
  done(execute(plan, operations));
}

Status CpuBackend::execute(const Plan& plan, std::span<Operation* const> operations) {
  const Request& request = plan.first();
  Collectives& collectives = collectives_of_(request.process_set);
  switch (request.kind) {
    case Kind::allreduce: return allreduce(request, operations, collectives);
    case Kind::allgather: return allgather(operations, collectives);
    case Kind::broadcast: return broadcast(request, *operations.front(), collectives);
    case Kind::alltoall: return alltoall(*operations.front(), collectives);
    case Kind::reducescatter: return reducescatter(request, operations, collectives);
    case Kind::reduce: return reduce(request, *operations.front(), collectives);
    case Kind::gather: return gather(*operations.front(), collectives);
    case Kind::scatter: return scatter(*operations.front(), collectives);
    case Kind::transfer: return transfer(*operations.front(), collectives);
    case Kind::barrier:
    case Kind::join:
    case Kind::add_process_set:
    case Kind::remove_process_set:
    case Kind::probe:
    case Kind::form_process_set:
    case Kind::leave_process_set: break;
  }
  return {Code::unknown, fmt::format("{} moves no data", name_of(request.kind))};
}

std::vector<Segments>& CpuBackend::scratch(size_t count, std::vector<Segments>& lists) {
  lists.resize(count);
  for (Segments& list : lists) list.clear();
  return lists;
}

Status CpuBackend::allreduce(const Request& request, std::span<Operation* const> operations, Collectives& collectives) {
  if (request.reduce_op == ReduceOp::adasum) {
    DType dtype = request.dtype;
    if (dtype != DType::f16 && dtype != DType::bf16 && dtype != DType::f32 && dtype != DType::f64) {
      return {Code::unknown, fmt::format("adasum of {} is not supported (tensor {})", name_of(dtype), request.name)};
    }
    Operation& operation = *operations.front();
    return collectives.adasum(operation.input.data, operation.output.data,
                              static_cast<size_t>(elements_of(request.shape)), dtype, request.prescale,
                              request.postscale);
  }
  auto reduction = reduction_of(request, collectives.size());
  if (!reduction.ok()) return reduction.status();
  in_.clear();
  out_.clear();
  for (Operation* operation : operations) {
    in_.add(operation->input.data, operation->input.bytes());
    out_.add(operation->output.data, operation->input.bytes());
  }
  return collectives.allreduce(in_, out_, *reduction);
}

Status combine(Operation& operation, ByteView theirs, int32_t position) {
  auto reduction = reduction_of(operation.request, 2);
  if (!reduction.ok()) return reduction.status();
  const std::byte* sources[] = {operation.input.data, theirs.data()};
  if (position == 1) std::swap(sources[0], sources[1]);
  reduce(reduction->dtype, reduction->op, operation.output.data, sources, theirs.size() / size_of(reduction->dtype),
         reduction->factor);
  return {};
}

Status CpuBackend::allgather(std::span<Operation* const> operations, Collectives& collectives) {
  std::vector<Segments>& theirs = scratch(static_cast<size_t>(collectives.size()), received_);
  in_.clear();
  for (Operation* operation : operations) {
    in_.add(operation->input.data, operation->input.bytes());
    size_t row = static_cast<size_t>(row_elements_of(operation->input.shape)) * size_of(operation->input.dtype);
    std::byte* place = operation->output.data;
    for (size_t p = 0; p < theirs.size(); p++) {
      size_t bytes = static_cast<size_t>(operation->received_rows[p]) * row;
      theirs[p].add(place, bytes);
      place += bytes;
    }
  }
  return collectives.allgather(in_, theirs);
}

Status CpuBackend::broadcast(const Request& request, Operation& operation, Collectives& collectives) {
  int32_t root = operation.root_position;
  bool is_root = root == collectives.position();
  TensorView& view = is_root ? operation.input : operation.output;
  if (Status status = collectives.broadcast(root, Segments(view.data, bytes_of(request))); !status.ok()) return status;
  if (is_root && operation.output.data != operation.input.data) {
    hvd::copy(operation.output.data, operation.input.data, bytes_of(request));
  }
  return {};
}

Status CpuBackend::alltoall(Operation& operation, Collectives& collectives) {
  size_t ranks = static_cast<size_t>(collectives.size());
  size_t row = static_cast<size_t>(row_elements_of(operation.input.shape)) * size_of(operation.input.dtype);
  std::vector<Segments>& sent = scratch(ranks, sent_);
  std::vector<Segments>& received = scratch(ranks, received_);
  std::byte* from = operation.input.data;
  std::byte* to = operation.output.data;
  for (size_t p = 0; p < ranks; p++) {
    size_t out_bytes = static_cast<size_t>(operation.sent_rows[p]) * row;
    size_t in_bytes = static_cast<size_t>(operation.received_rows[p]) * row;
    sent[p].add(from, out_bytes);
    received[p].add(to, in_bytes);
    from += out_bytes;
    to += in_bytes;
  }
  return collectives.alltoall(sent, received, static_cast<size_t>(operation.largest_rows) * row);
}

Status CpuBackend::reduce(const Request& request, Operation& operation, Collectives& collectives) {
  if (request.reduce_op == ReduceOp::adasum) {
    return {Code::unknown, fmt::format("reduce of {} does not support adasum; use allreduce", request.name)};
  }
  auto reduction = reduction_of(request, collectives.size());
  if (!reduction.ok()) return reduction.status();
  bool is_root = operation.root_position == collectives.position();
  size_t bytes = operation.input.bytes();
  return collectives.reduce(operation.root_position, Segments(operation.input.data, bytes),
                            is_root ? Segments(operation.output.data, bytes) : Segments(), *reduction);
}

Status CpuBackend::gather(Operation& operation, Collectives& collectives) {
  size_t row = static_cast<size_t>(row_elements_of(operation.input.shape)) * size_of(operation.input.dtype);
  std::vector<Segments>& theirs = scratch(static_cast<size_t>(collectives.size()), received_);
  bool is_root = operation.root_position == collectives.position();
  std::byte* place = operation.output.data;
  size_t largest = 0;
  for (size_t p = 0; p < theirs.size(); p++) {
    size_t bytes = static_cast<size_t>(operation.received_rows[p]) * row;
    largest = std::max(largest, bytes);
    if (!is_root) continue;
    theirs[p].add(place, bytes);
    place += bytes;
  }
  Segments mine(operation.input.data, operation.input.bytes());
  return collectives.gather(operation.root_position, mine, theirs, largest);
}

Status CpuBackend::scatter(Operation& operation, Collectives& collectives) {
  int32_t ranks = collectives.size();
  size_t row = static_cast<size_t>(row_elements_of(operation.input.shape)) * size_of(operation.input.dtype);
  std::vector<Segments>& parts = scratch(static_cast<size_t>(ranks), sent_);
  bool is_root = operation.root_position == collectives.position();
  std::byte* from = operation.input.data;
  for (int32_t p = 0; is_root && p < ranks; p++) {
    size_t bytes = static_cast<size_t>(share_of(operation.input.shape[0], p, ranks)) * row;
    parts[static_cast<size_t>(p)].add(from, bytes);
    from += bytes;
  }
  Segments mine(operation.output.data, operation.output.bytes());
  size_t largest = static_cast<size_t>(share_of(operation.input.shape[0], 0, ranks)) * row;
  return collectives.scatter(operation.root_position, parts, mine, largest);
}

Status CpuBackend::transfer(Operation& operation, Collectives& collectives) {
  bool sends = operation.root_position == collectives.position();
  TensorView& view = sends ? operation.input : operation.output;
  return collectives.broadcast(operation.root_position, Segments(view.data, operation.input.bytes()));
}

Status CpuBackend::reducescatter(const Request& request, std::span<Operation* const> operations,
                                 Collectives& collectives) {
  auto reduction = reduction_of(request, collectives.size());
  if (!reduction.ok()) return reduction.status();
  int32_t ranks = collectives.size();
  std::vector<Segments>& parts = scratch(static_cast<size_t>(ranks), sent_);
  out_.clear();
  for (Operation* operation : operations) {
    size_t row = static_cast<size_t>(row_elements_of(operation->input.shape)) * size_of(operation->input.dtype);
    std::byte* from = operation->input.data;
    for (int32_t p = 0; p < ranks; p++) {
      size_t bytes = static_cast<size_t>(share_of(operation->input.shape[0], p, ranks)) * row;
      parts[static_cast<size_t>(p)].add(from, bytes);
      if (p == collectives.position()) out_.add(operation->output.data, bytes);
      from += bytes;
    }
  }
  return collectives.reducescatter(parts, out_, *reduction);
}

}  // namespace hvd
