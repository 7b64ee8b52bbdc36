#include "backends/nccl/nccl_job.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/half.h"
#include "model/share.h"

namespace hvd {
namespace {

constexpr size_t kAlignment = 16;

CudaPointer address(const std::byte* data) { return reinterpret_cast<CudaPointer>(data); }
std::byte* pointer(CudaPointer address) { return reinterpret_cast<std::byte*>(address); }
size_t elements(const Operation& operation) { return static_cast<size_t>(elements_of(operation.request.shape)); }
size_t padded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
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

}  // namespace

std::vector<size_t> fused_offsets(std::span<Operation* const> operations) {
  std::vector<size_t> offsets{0};
  for (const Operation* operation : operations)
    offsets.push_back(offsets.back() + padded(bytes_of(operation->request)));
  return offsets;
}

size_t wanted_buffer(const Plan& plan, std::span<Operation* const> operations, int32_t ranks) {
  const Request& request = plan.first();
  if (request.kind == Kind::allreduce && operations.size() > 1) return fused_offsets(operations).back();
  if (request.kind == Kind::reducescatter && scales_before_scatter(nccl_reduction_of(request, ranks))) {
    return fused_offsets(operations).back();
  }
  return 0;
}

Status NcclLaunch::run() {
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
    case Kind::probe: break;
  }
  return {Code::unknown, "this kind of operation moves no data"};
}

// One launch for all calls of the body; NCCL does nothing before the end of a group.
template <class Body>
Status NcclLaunch::group(size_t calls, const char* name, Body&& body) {
  if (calls == 0) return {};
  if (calls > 1) {
    if (NcclResult result = nccl_.group_start(); result != NcclResult::success)
      return settle_(result, "ncclGroupStart");
  }
  NcclResult result = body();
  if (calls == 1) return settle_(result, name);
  bool is_fine = result == NcclResult::success || result == NcclResult::in_progress;
  NcclResult ended = nccl_.group_end();
  return settle_(is_fine ? ended : result, name);
}

// ---- copies and factors ----

Status NcclLaunch::move(std::span<const Piece> pieces, DType dtype, double factor) {
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
    if (Status status = settle_(NcclResult::success, "a copy through host memory"); !status.ok()) return status;
  }
}

// ---- allreduce ----

Status NcclLaunch::allreduce() {
  const Request& request = job_.plan->first();
  NcclReduction reduction = nccl_reduction_of(request, job_.communicator->size);
  NcclType type = *nccl_type_of(request.dtype);
  // As many tensors together as fit into the buffer; what does not fit goes alone, from input to output.
  std::span<Operation* const> rest(job_.operations);
  while (!rest.empty()) {
    size_t count = 0, bytes = 0;
    while (count < rest.size() && bytes + padded(bytes_of(rest[count]->request)) <= job_.buffer_bytes) {
      bytes += padded(bytes_of(rest[count++]->request));
    }
    Status status;
    if (count < 2) {
      count = 1;
      status = allreduce_one(*rest.front(), reduction, type);
    } else {
      status = allreduce_fused(rest.first(count), reduction, type);
    }
    if (!status.ok()) return status;
    rest = rest.subspan(count);
  }
  return {};
}

// Factors are applied in the output, so a single tensor needs no other memory.
Status NcclLaunch::allreduce_one(Operation& operation, const NcclReduction& reduction, NcclType type) {
  size_t count = elements(operation);
  if (count == 0) return {};
  DType dtype = operation.request.dtype;
  CudaPointer from = address(operation.input.data), to = address(operation.output.data);
  if (operation.is_stand_in) {
    auto memory = gpu().allocate(bytes_of(operation.request));
    if (!memory.ok()) return memory.status();
    job_.scratch.push_back(*memory);
    to = from = *memory;
    Status status = gpu().check(cuda_.memory_set(to, 0, bytes_of(operation.request), stream()), "cuMemsetD8Async");
    if (!status.ok()) return status;
  }
  if (reduction.before != 1.0) {
    Piece piece{.from = from, .to = to, .count = count};
    if (Status status = move({&piece, 1}, dtype, reduction.before); !status.ok()) return status;
    from = to;
  }
  Status status = group(1, "ncclAllReduce", [&] {
    return nccl_.all_reduce(pointer(from), pointer(to), count, type, reduction.op, job_.communicator->comm, stream());
  });
  if (!status.ok() || reduction.after == 1.0) return status;
  Piece piece{.from = to, .to = to, .count = count};
  return move({&piece, 1}, dtype, reduction.after);
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
  if (Status status = move(in, dtype, reduction.before); !status.ok()) return status;
  Status status = group(1, "ncclAllReduce", [&] {
    std::byte* buffer = pointer(job_.buffer);
    return nccl_.all_reduce(buffer, buffer, offsets.back() / size_of(dtype), type, reduction.op,
                            job_.communicator->comm, stream());
  });
  if (!status.ok()) return status;
  return move(out, dtype, reduction.after);
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
  return group(calls, "ncclAllGather", [&] {
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
  return group(calls, "ncclBroadcast", [&] {
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
  return group(has_parts ? 2 : 0, "ncclSend and ncclRecv", [&] {
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
    if (Status status = move(pieces, first.dtype, reduction.before); !status.ok()) return status;
  }
  size_t ranks = static_cast<size_t>(communicator.size), calls = 0;
  auto is_even = [&](const Operation& operation) { return operation.input.shape[0] % communicator.size == 0; };
  for (const Operation* operation : job_.operations) {
    if (elements(*operation) > 0) calls += is_even(*operation) ? 1 : ranks;
  }
  Status status = group(calls, "ncclReduceScatter", [&] {
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
  return move(pieces, first.dtype, reduction.after);
}

}  // namespace hvd
