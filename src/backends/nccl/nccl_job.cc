#include "backends/nccl/nccl_job.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/half.h"
#include "base/round_up.h"
#include "model/share.h"

namespace hvd {
namespace {

constexpr size_t kAlignment = 16;
constexpr const char* kIn = "MEMCPY_IN_FUSION_BUFFER";
constexpr const char* kOut = "MEMCPY_OUT_FUSION_BUFFER";

// What the timeline calls the work of a function of NCCL.
const char* activity_of(std::string_view call) {
  if (call == "ncclAllReduce") return "NCCL_ALLREDUCE";
  if (call == "ncclAllGather") return "NCCL_ALLGATHER";
  if (call == "ncclBroadcast") return "NCCL_BCAST";
  if (call == "ncclReduceScatter") return "NCCL_REDUCESCATTER";
  if (call == "ncclReduce") return "NCCL_REDUCE";
  return "NCCL_ALLTOALL";
}

CudaPointer address(const std::byte* data) { return reinterpret_cast<CudaPointer>(data); }
std::byte* pointer(CudaPointer address) { return reinterpret_cast<std::byte*>(address); }
size_t elements(const Operation& operation) { return static_cast<size_t>(elements_of(operation.request.shape)); }
size_t padded(size_t bytes) { return round_up(bytes, kAlignment); }
size_t row_bytes(const Operation& operation) {
  return static_cast<size_t>(row_elements_of(operation.input.shape)) * size_of(operation.input.dtype);
}

template <class T>
void scale_values(std::byte* data, size_t count, double factor) {
  T* values = reinterpret_cast<T*>(data);
  for (size_t i = 0; i < count; i++) {
    if constexpr (std::is_same_v<T, float>) {
      values[i] *= static_cast<float>(factor);
    } else {
      values[i] = static_cast<T>(static_cast<double>(values[i]) * factor);
    }
  }
}

template <class Read, class Write>
void scale_16_bit(std::byte* data, size_t count, double factor, Read read, Write write) {
  uint16_t* values = reinterpret_cast<uint16_t*>(data);
  for (size_t i = 0; i < count; i++) values[i] = write(read(values[i]) * static_cast<float>(factor));
}

void scale_in_host_memory(std::byte* data, size_t count, DType dtype, double factor) {
  switch (dtype) {
    case DType::u8: return scale_values<uint8_t>(data, count, factor);
    case DType::i8: return scale_values<int8_t>(data, count, factor);
    case DType::i32: return scale_values<int32_t>(data, count, factor);
    case DType::i64: return scale_values<int64_t>(data, count, factor);
    case DType::f32: return scale_values<float>(data, count, factor);
    case DType::f64: return scale_values<double>(data, count, factor);
    case DType::f16:
      return scale_16_bit(
          data, count, factor, [](uint16_t x) { return half_to_float(x); }, [](float x) { return float_to_half(x); });
    case DType::bf16:
      return scale_16_bit(
          data, count, factor, [](uint16_t x) { return bfloat16_to_float(x); },
          [](float x) { return float_to_bfloat16(x); });
    case DType::u16:
    case DType::i16:
    case DType::boolean:
    case DType::c64:
    case DType::c128: return;
  }
}

// Only a factor of whole numbers is applied before a reduce-scatter that way; the others go into NCCL's own scaling.
bool scales_before_scatter(const NcclReduction& reduction) { return reduction.before != 1.0; }

size_t round_of(const Communicator& communicator, bool is_torus) {
  return kAlignment * static_cast<size_t>(is_torus ? communicator.hosts.local_size : 1);
}

}  // namespace

std::vector<size_t> fused_offsets(std::span<Operation* const> operations) {
  std::vector<size_t> offsets{0};
  for (const Operation* operation : operations)
    offsets.push_back(offsets.back() + padded(bytes_of(operation->request)));
  return offsets;
}

bool is_torus(const Communicator& communicator, bool use_torus) {
  return use_torus && communicator.hosts.hosts > 1 && communicator.hosts.is_even && communicator.hosts.local_size > 1;
}

size_t wanted_buffer(const Plan& plan, std::span<Operation* const> operations, const Communicator& communicator,
                     bool use_torus) {
  const Request& request = plan.first();
  if (request.kind == Kind::allreduce && request.reduce_op != ReduceOp::adasum) {
    size_t all = fused_offsets(operations).back();
    if (is_torus(communicator, use_torus)) return round_up(all, round_of(communicator, true));
    return operations.size() > 1 ? all : 0;
  }
  if (request.kind == Kind::reducescatter && scales_before_scatter(nccl_reduction_of(request, communicator.size))) {
    return fused_offsets(operations).back();
  }
  return 0;
}

Status NcclLaunch::mark(const char* activity) {
  if (!job_.is_recorded) return {};
  auto event = gpu().take_event(true);
  if (!event.ok()) return event.status();
  if (Status status = gpu().record((*event)->event, stream()); !status.ok()) return status;
  job_.marks.push_back({activity, std::move(*event)});
  return {};
}

Status NcclLaunch::run() {
  if (Status status = mark(nullptr); !status.ok()) return status;
  if (job_.part == JobPart::to_host) return adasum_to_host();
  if (job_.part == JobPart::from_host) return adasum_from_host();
  switch (job_.plan->first().kind) {
    case Kind::allreduce: return allreduce();
    case Kind::allgather: return allgather();
    case Kind::broadcast: return broadcast();
    case Kind::alltoall: return alltoall();
    case Kind::reducescatter: return reducescatter();
    case Kind::barrier:
    case Kind::join:
    case Kind::add_process_set:
    case Kind::remove_process_set:
    case Kind::reduce:
    case Kind::gather:
    case Kind::scatter:
    case Kind::transfer:
    case Kind::probe:
    case Kind::form_process_set:
    case Kind::leave_process_set: break;
  }
  return {Code::unknown, "this kind of operation moves no data"};
}

// One launch for all calls of the body; NCCL does nothing before the end of a group.
template <class Body>
Status NcclLaunch::group(NcclComm comm, size_t calls, const char* name, Body&& body) {
  if (calls == 0) return {};
  if (calls > 1) {
    if (NcclResult result = nccl_.group_start(); result != NcclResult::success)
      return settle_(comm, result, "ncclGroupStart");
  }
  NcclResult result = body();
  if (calls == 1) {
    Status status = settle_(comm, result, name);
    return status.ok() ? mark(activity_of(name)) : status;
  }
  bool is_fine = result == NcclResult::success || result == NcclResult::in_progress;
  NcclResult ended = nccl_.group_end();
  Status status = settle_(comm, is_fine ? ended : result, name);
  return status.ok() ? mark(activity_of(name)) : status;
}

// ---- copies and factors ----

Status NcclLaunch::move(const char* activity, std::span<const Piece> pieces, DType dtype, double factor) {
  if (Status status = move_pieces(pieces, dtype, factor); !status.ok()) return status;
  return mark(activity);
}

Status NcclLaunch::move_pieces(std::span<const Piece> pieces, DType dtype, double factor) {
  if (pieces.empty()) return {};
  std::vector<Piece> bytes(pieces.begin(), pieces.end());
  for (Piece& piece : bytes) piece.count *= size_of(dtype);
  bool can = gpu().has_kernels();
  if (factor != 1.0) {
    if (can) return gpu().scale(pieces, dtype, factor, stream());
    for (const Piece& piece : pieces) {
      if (Status status = scale_on_host(piece, dtype, factor); !status.ok()) return status;
    }
    return {};
  }
  if (can && settings_.use_kernels) return gpu().copy(bytes, stream());
  return gpu().copy_one_by_one(bytes, stream());
}

// Without kernels the elements go through host memory, and this thread waits for them.
Status NcclLaunch::scale_on_host(const Piece& piece, DType dtype, double factor) {
  size_t bytes = piece.count * size_of(dtype);
  if (bytes == 0) return {};
  if (piece.from == 0) return gpu().check(cuda_.memory_set(piece.to, 0, bytes, stream()), "cuMemsetD8Async");
  void* host = nullptr;
  if (Status status = gpu().check(cuda_.host_allocate(&host, bytes, 0), "cuMemHostAlloc"); !status.ok()) return status;
  Status status = gpu().check(cuda_.copy_to_host(host, piece.from, bytes, stream()), "cuMemcpyDtoHAsync");
  if (status.ok()) status = wait_for_stream();
  if (status.ok()) {
    scale_in_host_memory(static_cast<std::byte*>(host), piece.count, dtype, factor);
    status = gpu().check(cuda_.copy_to_device(piece.to, host, bytes, stream()), "cuMemcpyHtoDAsync");
  }
  if (status.ok()) status = wait_for_stream();
  cuda_.host_free(host);
  return status;
}

// Looks at an event, so that it can end when the world fails.
Status NcclLaunch::wait_for_stream() {
  auto event = gpu().take_event();
  if (!event.ok()) return event.status();
  if (Status status = gpu().record((*event)->event, stream()); !status.ok()) return status;
  while (true) {
    CudaResult result = cuda_.event_query((*event)->event);
    if (result != kCudaNotReady) return gpu().check(result, "cuEventQuery");
    if (Status status = settle_(nullptr, NcclResult::success, "a copy through host memory"); !status.ok())
      return status;
  }
}

// ---- allreduce ----

Status NcclLaunch::allreduce() {
  const Request& request = job_.plan->first();
  NcclReduction reduction = nccl_reduction_of(request, job_.communicator->size);
  NcclType type = *nccl_type_of(request.dtype);
  // As many tensors together as fit into the buffer; what does not fit goes alone, from input to output.
  std::span<Operation* const> rest(job_.operations);
  bool is_torus = hvd::is_torus(*job_.communicator, settings_.use_torus);
  size_t room = job_.buffer_bytes / round() * round();
  while (!rest.empty()) {
    size_t count = 0, bytes = 0;
    while (count < rest.size() && bytes + padded(bytes_of(rest[count]->request)) <= room) {
      bytes += padded(bytes_of(rest[count++]->request));
    }
    Status status;
    if (count < (is_torus ? 1 : 2)) {
      count = 1;
      status = allreduce_one(*rest.front(), reduction, type, job_.communicator->comm);
    } else {
      status = allreduce_fused(rest.first(count), reduction, type);
    }
    if (!status.ok()) return status;
    rest = rest.subspan(count);
  }
  return {};
}

// Factors are applied in the output, so a single tensor needs no other memory.
Status NcclLaunch::allreduce_one(Operation& operation, const NcclReduction& reduction, NcclType type, NcclComm comm) {
  size_t count = elements(operation);
  if (count == 0) return {};
  DType dtype = operation.request.dtype;
  CudaPointer from = address(operation.input.data), to = address(operation.output.data);
  if (operation.is_stand_in) {
    auto memory = zeros(operation);
    if (!memory.ok()) return memory.status();
    to = from = *memory;
  }
  if (reduction.before != 1.0) {
    Piece piece{.from = from, .to = to, .count = count};
    if (Status status = move(kIn, {&piece, 1}, dtype, reduction.before); !status.ok()) return status;
    from = to;
  }
  Status status = group(comm, 1, "ncclAllReduce", [&] {
    return nccl_.all_reduce(pointer(from), pointer(to), count, type, reduction.op, comm, stream());
  });
  if (!status.ok() || reduction.after == 1.0) return status;
  Piece piece{.from = to, .to = to, .count = count};
  return move(kOut, {&piece, 1}, dtype, reduction.after);
}

Status NcclLaunch::allreduce_fused(std::span<Operation* const> operations, const NcclReduction& reduction,
                                   NcclType type) {
  DType dtype = operations.front()->request.dtype;
  std::vector<size_t> offsets = fused_offsets(operations);
  if (offsets.back() == 0) return {};
  std::vector<Piece> in, out;
  for (size_t i = 0; i < operations.size(); i++) {
    const Operation& operation = *operations[i];
    CudaPointer place = job_.buffer + offsets[i];
    size_t count = elements(operation);
    if (count == 0) continue;
    in.push_back({.from = operation.is_stand_in ? 0 : address(operation.input.data), .to = place, .count = count});
    if (!operation.is_stand_in) out.push_back({.from = place, .to = address(operation.output.data), .count = count});
  }
  if (Status status = move(kIn, in, dtype, reduction.before); !status.ok()) return status;
  if (Status status = reduce_buffer(offsets.back(), dtype, reduction.op, type); !status.ok()) return status;
  return move(kOut, out, dtype, reduction.after);
}

size_t NcclLaunch::round() const {
  return round_of(*job_.communicator, is_torus(*job_.communicator, settings_.use_torus));
}

// The buffer in place, at once or along the torus: each member reduces its part inside its host, then between the
// hosts.
Status NcclLaunch::reduce_buffer(size_t bytes, DType dtype, NcclOp op, NcclType type) {
  const Communicator& communicator = *job_.communicator;
  std::byte* buffer = pointer(job_.buffer);
  size_t width = size_of(dtype);
  if (!is_torus(communicator, settings_.use_torus)) {
    return group(communicator.comm, 1, "ncclAllReduce", [&] {
      return nccl_.all_reduce(buffer, buffer, bytes / width, type, op, communicator.comm, stream());
    });
  }
  size_t part = round_up(bytes, round()) / static_cast<size_t>(communicator.hosts.local_size);
  std::byte* mine = buffer + part * static_cast<size_t>(communicator.hosts.position);
  Status status = group(communicator.local, 1, "ncclReduceScatter", [&] {
    return nccl_.reduce_scatter(buffer, mine, part / width, type, op, communicator.local, stream());
  });
  if (!status.ok()) return status;
  status = group(communicator.cross, 1, "ncclAllReduce",
                 [&] { return nccl_.all_reduce(mine, mine, part / width, type, op, communicator.cross, stream()); });
  if (!status.ok()) return status;
  return group(communicator.local, 1, "ncclAllGather",
               [&] { return nccl_.all_gather(mine, buffer, part, NcclType::u8, communicator.local, stream()); });
}

// What a rank that has joined contributes; freed at the end of the plan.
Result<CudaPointer> NcclLaunch::zeros(const Operation& operation) {
  auto memory = gpu().allocate(bytes_of(operation.request));
  if (!memory.ok()) return memory;
  job_.scratch.push_back(*memory);
  CudaResult result = cuda_.memory_set(*memory, 0, bytes_of(operation.request), stream());
  if (Status status = gpu().check(result, "cuMemsetD8Async"); !status.ok()) return status;
  return memory;
}

// ---- Adasum between hosts ----

// The average of this host's members, in their host memory. The factors are left to what combines the hosts.
Status NcclLaunch::adasum_to_host() {
  Operation& operation = *job_.operations.front();
  size_t bytes = bytes_of(operation.request);
  CudaPointer from = address(operation.input.data);
  if (job_.communicator->hosts.local_size > 1) {
    Request average{.kind = Kind::allreduce, .reduce_op = ReduceOp::average, .dtype = operation.request.dtype};
    NcclReduction reduction = nccl_reduction_of(average, job_.communicator->hosts.local_size);
    NcclType type = *nccl_type_of(operation.request.dtype);
    Status status = allreduce_one(operation, reduction, type, job_.communicator->local);
    if (!status.ok()) return status;
    from = operation.is_stand_in ? job_.scratch.back() : address(operation.output.data);
  } else if (operation.is_stand_in) {
    auto memory = zeros(operation);
    if (!memory.ok()) return memory.status();
    from = *memory;
  }
  Status status = gpu().check(cuda_.copy_to_host(job_.on_host, from, bytes, stream()), "cuMemcpyDtoHAsync");
  return status.ok() ? mark("MEMCPY_IN_HOST_BUFFER") : status;
}

Status NcclLaunch::adasum_from_host() {
  const Operation& operation = *job_.operations.front();
  if (operation.is_stand_in) return {};
  size_t bytes = bytes_of(operation.request);
  CudaResult result = cuda_.copy_to_device(address(operation.output.data), job_.on_host, bytes, stream());
  Status status = gpu().check(result, "cuMemcpyHtoDAsync");
  return status.ok() ? mark("MEMCPY_OUT_HOST_BUFFER") : status;
}

// ---- kinds that move bytes ----

Status NcclLaunch::allgather() {
  const Communicator& communicator = *job_.communicator;
  size_t ranks = static_cast<size_t>(communicator.size);
  auto is_even = [](const Operation& operation) {
    const std::vector<int64_t>& rows = operation.received_rows;
    return std::all_of(rows.begin(), rows.end(), [&](int64_t count) { return count == rows.front(); });
  };
  // Ranks with different rows: each broadcasts its own.
  size_t calls = 0;
  for (const Operation* operation : job_.operations) {
    if (operation->output.bytes() == 0) continue;
    calls += is_even(*operation) ? 1 : ranks;
  }
  return group(communicator.comm, calls, "ncclAllGather", [&] {
    NcclResult result = NcclResult::success;
    auto keep = [&](NcclResult next) {
      if (next != NcclResult::success && next != NcclResult::in_progress) result = next;
      if (result == NcclResult::success) result = next;
    };
    for (const Operation* operation : job_.operations) {
      if (operation->output.bytes() == 0) continue;
      size_t row = row_bytes(*operation);
      if (is_even(*operation)) {
        keep(nccl_.all_gather(operation->input.data, operation->output.data, operation->input.bytes(), NcclType::u8,
                              communicator.comm, stream()));
        continue;
      }
      std::byte* place = operation->output.data;
      for (size_t p = 0; p < ranks; p++) {
        size_t bytes = static_cast<size_t>(operation->received_rows[p]) * row;
        bool is_mine = static_cast<int32_t>(p) == communicator.position;
        keep(nccl_.broadcast(is_mine ? operation->input.data : place, place, bytes, NcclType::u8, static_cast<int>(p),
                             communicator.comm, stream()));
        place += bytes;
      }
    }
    return result;
  });
}

Status NcclLaunch::broadcast() {
  size_t calls = 0;
  for (const Operation* operation : job_.operations) calls += operation->input.bytes() > 0 ? 1 : 0;
  return group(job_.communicator->comm, calls, "ncclBroadcast", [&] {
    NcclResult result = NcclResult::success;
    for (const Operation* operation : job_.operations) {
      if (operation->input.bytes() == 0) continue;
      NcclResult next = nccl_.broadcast(operation->input.data, operation->output.data, operation->input.bytes(),
                                        NcclType::u8, operation->root_position, job_.communicator->comm, stream());
      if (next != NcclResult::success) result = next;
    }
    return result;
  });
}

// Empty parts are left out, on both sides.
Status NcclLaunch::alltoall() {
  const Communicator& communicator = *job_.communicator;
  size_t ranks = static_cast<size_t>(communicator.size);
  bool has_parts = false;
  for (const Operation* operation : job_.operations) {
    size_t row = row_bytes(*operation);
    for (size_t p = 0; p < ranks; p++) {
      has_parts |= row > 0 && (operation->sent_rows[p] > 0 || operation->received_rows[p] > 0);
    }
  }
  return group(communicator.comm, has_parts ? 2 : 0, "ncclSend and ncclRecv", [&] {
    NcclResult result = NcclResult::success;
    auto keep = [&](NcclResult next) {
      if (next != NcclResult::success) result = next;
    };
    for (const Operation* operation : job_.operations) {
      size_t row = row_bytes(*operation);
      const std::byte* from = operation->input.data;
      std::byte* to = operation->output.data;
      for (size_t p = 0; p < ranks; p++) {
        size_t sent = static_cast<size_t>(operation->sent_rows[p]) * row;
        size_t received = static_cast<size_t>(operation->received_rows[p]) * row;
        int peer = static_cast<int>(p);
        if (sent > 0) keep(nccl_.send(from, sent, NcclType::u8, peer, communicator.comm, stream()));
        if (received > 0) keep(nccl_.receive(to, received, NcclType::u8, peer, communicator.comm, stream()));
        from += sent;
        to += received;
      }
    }
    return result;
  });
}

// ---- reducescatter ----

Status NcclLaunch::reducescatter() {
  const Communicator& communicator = *job_.communicator;
  const Request& first = job_.plan->first();
  NcclReduction reduction = nccl_reduction_of(first, communicator.size);
  NcclType type = *nccl_type_of(first.dtype);
  std::vector<const std::byte*> inputs;
  std::vector<size_t> offsets = fused_offsets(job_.operations);
  for (const Operation* operation : job_.operations) inputs.push_back(operation->input.data);
  if (reduction.before != 1.0) {  // the input must stay as it is, so it is scaled into the buffer
    if (offsets.back() > job_.buffer_bytes) {
      return {Code::unknown,
              fmt::format("a scaled reducescatter of {} needs as much GPU memory as its input, but there is only {}; "
                          "leave prescale_factor 1, or use smaller tensors",
                          bytes_text(offsets.back()), bytes_text(job_.buffer_bytes))};
    }
    std::vector<Piece> pieces;
    for (size_t i = 0; i < inputs.size(); i++) {
      CudaPointer place = job_.buffer + offsets[i];
      size_t count = elements(*job_.operations[i]);
      if (count > 0) pieces.push_back({.from = address(inputs[i]), .to = place, .count = count});
      inputs[i] = pointer(place);
    }
    if (Status status = move(kIn, pieces, first.dtype, reduction.before); !status.ok()) return status;
  }
  size_t ranks = static_cast<size_t>(communicator.size), calls = 0;
  auto is_even = [&](const Operation& operation) { return operation.input.shape[0] % communicator.size == 0; };
  for (const Operation* operation : job_.operations) {
    if (elements(*operation) > 0) calls += is_even(*operation) ? 1 : ranks;
  }
  bool all_even = std::all_of(job_.operations.begin(), job_.operations.end(),
                              [&](const Operation* operation) { return is_even(*operation); });
  Status status = group(communicator.comm, calls, all_even ? "ncclReduceScatter" : "ncclReduce", [&] {
    NcclResult result = NcclResult::success;
    auto keep = [&](NcclResult next) {
      if (next != NcclResult::success) result = next;
    };
    for (size_t i = 0; i < job_.operations.size(); i++) {
      const Operation& operation = *job_.operations[i];
      if (elements(operation) == 0) continue;
      size_t row = static_cast<size_t>(row_elements_of(operation.input.shape));
      if (is_even(operation)) {
        keep(nccl_.reduce_scatter(inputs[i], operation.output.data, elements(operation) / ranks, type, reduction.op,
                                  communicator.comm, stream()));
        continue;
      }
      const std::byte* from = inputs[i];
      for (int32_t p = 0; p < communicator.size; p++) {
        size_t count = static_cast<size_t>(share_of(operation.input.shape[0], p, communicator.size)) * row;
        if (count > 0)
          keep(nccl_.reduce(from, operation.output.data, count, type, reduction.op, p, communicator.comm, stream()));
        from += count * size_of(first.dtype);
      }
    }
    return result;
  });
  if (!status.ok() || reduction.after == 1.0) return status;
  std::vector<Piece> pieces;
  for (const Operation* operation : job_.operations) {
    CudaPointer place = address(operation->output.data);
    size_t count = static_cast<size_t>(elements_of(operation->output.shape));
    if (count > 0) pieces.push_back({.from = place, .to = place, .count = count});
  }
  return move(kOut, pieces, first.dtype, reduction.after);
}

}  // namespace hvd
