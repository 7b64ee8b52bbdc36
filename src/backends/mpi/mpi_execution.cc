#include "backends/mpi/mpi_execution.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "model/share.h"

namespace hvd {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kLargeBytes = 16 << 20, kPieceBytes = 1 << 20;

size_t elements(const TensorView& view) { return static_cast<size_t>(elements_of(view.shape)); }
size_t row_elements(const Operation& operation) { return static_cast<size_t>(row_elements_of(operation.input.shape)); }
size_t row_bytes(const Operation& operation) { return row_elements(operation) * size_of(operation.input.dtype); }

// Contiguous, as MPI requires.
void lay_out(std::span<const size_t> sizes, std::vector<int32_t>& counts, std::vector<int32_t>& offsets) {
  counts.resize(sizes.size());
  offsets.resize(sizes.size());
  int32_t at = 0;
  for (size_t i = 0; i < sizes.size(); i++) {
    counts[i] = static_cast<int32_t>(sizes[i]);
    offsets[i] = at;
    at += counts[i];
  }
}

int32_t number(DType dtype) { return static_cast<int32_t>(dtype); }
int32_t number(ReduceOp op) { return static_cast<int32_t>(op); }

}  // namespace

Result<std::byte*> Staging::take(size_t bytes) {
  if (bytes <= bytes_) return memory_.get();
  memory_.reset();
  bytes_ = 0;
  void* memory = nullptr;
  if (::posix_memalign(&memory, kPage, bytes) != 0) {
    return Status(Code::unknown,
                  fmt::format("cannot allocate {} bytes for the fused data of one MPI call (HOROVOD_FUSION_THRESHOLD "
                              "limits its size)",
                              bytes));
  }
  bytes_ = bytes;
  memory_.reset(static_cast<std::byte*>(memory));
  return memory_.get();
}

Status MpiExecution::start(const Plan& plan, std::span<Operation* const> operations, const MpiComm& comm,
                           const Reduction& reduction) {
  kind_ = plan.first().kind;
  rank_ = comm.rank;
  reduction_ = reduction;
  operations_.assign(operations.begin(), operations.end());
  requests_.clear();
  tested_ = 0;
  staged_ = nullptr;
  return post(comm);
}

Status MpiExecution::post(const MpiComm& comm) {
  switch (kind_) {
    case Kind::allreduce: return allreduce(comm);
    case Kind::allgather: return allgather(comm);
    case Kind::broadcast: return broadcast(comm);
    case Kind::alltoall: return alltoall(comm);
    case Kind::reducescatter: return reducescatter(comm);
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
  return {Code::unknown, "moves no data"};
}

Result<bool> MpiExecution::test() {
  for (; tested_ < requests_.size(); tested_++) {
    int32_t is_done = 0;
    int code = library_->test(requests_[tested_], &is_done);
    if (code != 0) return library_.check(code, name.c_str());
    if (is_done == 0) return false;
  }
  finish();
  return true;
}

Status MpiExecution::posted(int code, const char* call, hvd_mpi_request* request) {
  if (code != 0) return library_.check(code, call);
  requests_.push_back(request);
  return {};
}

template <class Post>
Status MpiExecution::post_pieces(size_t count, size_t most, const char* call, Post&& post) {
  for (size_t at = 0; at < count; at += most) {
    hvd_mpi_request* request = nullptr;
    int code = post(at, static_cast<int32_t>(std::min(most, count - at)), &request);
    if (Status status = posted(code, call, request); !status.ok()) return status;
  }
  return {};
}

void MpiExecution::take_in(std::byte* place, const std::byte* data, size_t count) const {
  if (reduction_.prescale != 1.0) {
    scale(reduction_.dtype, place, data, count, reduction_.prescale);
  } else {
    hvd::copy(place, data, count * item());
  }
}

void MpiExecution::put_out(const Operation& operation, const std::byte* place, size_t count) const {
  std::byte* out = operation.output.data;
  if (reduction_.factor != 1.0) {
    scale(reduction_.dtype, out, place, count, reduction_.factor);
  } else if (out != place) {
    hvd::copy(out, place, count * item());
  }
}

// ---- one function per kind ----

// Open MPI 4.1 takes 2.5 times as long for a large in-place MPI_Iallreduce of two ranks as for pieces of a copy; with
// four ranks, and in MPICH, in place is as fast as MPI_Allreduce (benchmarks/mpi.py).
bool MpiExecution::is_slow_in_place(const MpiComm& comm, size_t bytes) const {
  return comm.size == 2 && bytes >= kLargeBytes && std::string_view(library_->compiled_for) == "Open MPI";
}

Status MpiExecution::allreduce(const MpiComm& comm) {
  const Operation& first = *operations_.front();
  const std::byte* in = first.input.data;
  std::byte* out = first.output.data;
  size_t count = 0;
  for (const Operation* operation : operations_) count += elements(operation->input);
  if (is_fused()) {
    auto staging = out_.take(count * item());
    if (!staging.ok()) return staging.status();
    out = staged_ = *staging;
    std::byte* place = out;
    for (const Operation* operation : operations_) {
      take_in(place, operation->input.data, elements(operation->input));
      place += operation->input.bytes();
    }
    in = nullptr;
  } else if (reduction_.prescale != 1.0) {
    take_in(out, in, count);
    in = nullptr;
  } else if (in == out) {
    in = nullptr;
  }
  size_t most = most_;
  if (in == nullptr && is_slow_in_place(comm, count * item())) {
    auto copied = in_.take(count * item());
    if (!copied.ok()) return copied.status();
    hvd::copy(*copied, out, count * item());
    in = *copied;
    most = std::min(most, kPieceBytes / item());
  }
  return post_pieces(count, most, "MPI_Iallreduce", [&](size_t at, int32_t some, hvd_mpi_request** request) {
    return library_->allreduce(comm.handle, in != nullptr ? in + at * item() : nullptr, out + at * item(), some,
                               number(reduction_.dtype), number(reduction_.op), request);
  });
}

Status MpiExecution::broadcast(const MpiComm& comm) {
  const Operation& operation = *operations_.front();
  bool is_root = operation.root_position == comm.rank;
  std::byte* data = is_root ? operation.input.data : operation.output.data;
  size_t bytes = operation.input.bytes();
  Status status = post_pieces(bytes, most_, "MPI_Ibcast", [&](size_t at, int32_t some, hvd_mpi_request** request) {
    return library_->broadcast(comm.handle, data + at, some, operation.root_position, request);
  });
  if (is_root && operation.output.data != data) hvd::copy(operation.output.data, data, bytes);
  return status;
}

Status MpiExecution::allgather(const MpiComm& comm) {
  shares_.assign(static_cast<size_t>(comm.size), 0);
  for (const Operation* operation : operations_) {
    for (size_t p = 0; p < shares_.size(); p++) {
      shares_[p] += static_cast<size_t>(operation->received_rows[p]) * row_bytes(*operation);
    }
  }
  size_t total = std::accumulate(shares_.begin(), shares_.end(), size_t{0});
  if (total == 0) return {};
  const std::byte* mine = operations_.front()->input.data;
  std::byte* all = operations_.front()->output.data;
  if (is_fused()) {
    auto packed = in_.take(shares_[static_cast<size_t>(comm.rank)]);
    auto gathered = out_.take(total);
    for (const auto* each : {&packed, &gathered})
      if (!each->ok()) return each->status();
    std::byte* place = *packed;
    mine = place;
    for (const Operation* operation : operations_) {
      hvd::copy(place, operation->input.data, operation->input.bytes());
      place += operation->input.bytes();
    }
    all = staged_ = *gathered;
  }
  if (total > most_) return gather_by_broadcasts(comm, mine, all);
  lay_out(shares_, counts_, offsets_);
  hvd_mpi_request* request = nullptr;
  int code = library_->allgather(comm.handle, mine, counts_[static_cast<size_t>(comm.rank)], all, counts_.data(),
                                 offsets_.data(), &request);
  return posted(code, "MPI_Iallgatherv", request);
}

Status MpiExecution::alltoall(const MpiComm& comm) {
  const Operation& operation = *operations_.front();
  size_t row = row_bytes(operation), ranks = static_cast<size_t>(comm.size);
  if (static_cast<size_t>(operation.largest_rows) * row * ranks > most_) return exchange_in_pieces(comm, row);
  auto in_bytes = [&](const std::vector<int64_t>& rows) {
    std::vector<size_t> sizes(ranks);
    for (size_t p = 0; p < ranks; p++) sizes[p] = static_cast<size_t>(rows[p]) * row;
    return sizes;
  };
  lay_out(in_bytes(operation.sent_rows), counts_, offsets_);
  lay_out(in_bytes(operation.received_rows), more_counts_, more_offsets_);
  hvd_mpi_request* request = nullptr;
  int code = library_->alltoall(comm.handle, operation.input.data, counts_.data(), offsets_.data(),
                                operation.output.data, more_counts_.data(), more_offsets_.data(), &request);
  return posted(code, "MPI_Ialltoallv", request);
}

Status MpiExecution::reducescatter(const MpiComm& comm) {
  shares_.assign(static_cast<size_t>(comm.size), 0);
  for (const Operation* operation : operations_) {
    for (int32_t p = 0; p < comm.size; p++) {
      int64_t rows = share_of(operation->input.shape[0], p, comm.size);
      shares_[static_cast<size_t>(p)] += static_cast<size_t>(rows) * row_elements(*operation);
    }
  }
  size_t total = std::accumulate(shares_.begin(), shares_.end(), size_t{0});
  if (total == 0) return {};
  bool must_pack = is_fused() || reduction_.prescale != 1.0;
  auto in = must_pack ? pack_by_receiver(comm.size) : Result<std::byte*>(operations_.front()->input.data);
  auto out = is_fused() ? out_.take(shares_[static_cast<size_t>(comm.rank)] * item())
                        : Result<std::byte*>(operations_.front()->output.data);
  for (const auto* each : {&in, &out})
    if (!each->ok()) return each->status();
  if (is_fused()) staged_ = *out;
  if (total > most_) return reduce_to_each(comm, *in, *out);
  lay_out(shares_, counts_, offsets_);
  hvd_mpi_request* request = nullptr;
  int code = library_->reduce_scatter(comm.handle, *in, *out, counts_.data(), number(reduction_.dtype),
                                      number(reduction_.op), &request);
  return posted(code, "MPI_Ireduce_scatter", request);
}

Result<std::byte*> MpiExecution::pack_by_receiver(int32_t ranks) {
  size_t total = std::accumulate(shares_.begin(), shares_.end(), size_t{0});
  auto packed = in_.take(total * item());
  if (!packed.ok()) return packed;
  std::byte* place = *packed;
  std::vector<const std::byte*> from;
  for (const Operation* operation : operations_) from.push_back(operation->input.data);
  for (int32_t p = 0; p < ranks; p++) {
    for (size_t i = 0; i < operations_.size(); i++) {
      const Operation& operation = *operations_[i];
      size_t count = static_cast<size_t>(share_of(operation.input.shape[0], p, ranks)) * row_elements(operation);
      take_in(place, from[i], count);
      from[i] += count * item();
      place += count * item();
    }
  }
  return packed;
}

// ---- data too large for one call ----

Status MpiExecution::gather_by_broadcasts(const MpiComm& comm, const std::byte* mine, std::byte* all) {
  std::byte* place = all;
  for (int32_t p = 0; p < comm.size; p++) {
    size_t bytes = shares_[static_cast<size_t>(p)];
    if (p == comm.rank) hvd::copy(place, mine, bytes);
    Status status = post_pieces(bytes, most_, "MPI_Ibcast", [&](size_t at, int32_t some, hvd_mpi_request** request) {
      return library_->broadcast(comm.handle, place + at, some, p, request);
    });
    if (!status.ok()) return status;
    place += bytes;
  }
  return {};
}

Status MpiExecution::exchange_in_pieces(const MpiComm& comm, size_t row) {
  const Operation& operation = *operations_.front();
  const std::byte* from = operation.input.data;
  std::byte* to = operation.output.data;
  for (int32_t p = 0; p < comm.size; p++) {
    size_t sent = static_cast<size_t>(operation.sent_rows[static_cast<size_t>(p)]) * row;
    size_t received = static_cast<size_t>(operation.received_rows[static_cast<size_t>(p)]) * row;
    Status status;
    if (p == comm.rank) {
      hvd::copy(to, from, sent);
    } else {
      status = post_pieces(received, most_, "MPI_Irecv", [&](size_t at, int32_t some, hvd_mpi_request** request) {
        return library_->receive(comm.handle, to + at, some, p, request);
      });
      if (!status.ok()) return status;
      status = post_pieces(sent, most_, "MPI_Isend", [&](size_t at, int32_t some, hvd_mpi_request** request) {
        return library_->send(comm.handle, from + at, some, p, request);
      });
    }
    if (!status.ok()) return status;
    from += sent;
    to += received;
  }
  return {};
}

Status MpiExecution::reduce_to_each(const MpiComm& comm, const std::byte* in, std::byte* out) {
  for (int32_t p = 0; p < comm.size; p++) {
    size_t count = shares_[static_cast<size_t>(p)];
    Status status = post_pieces(count, most_, "MPI_Ireduce", [&](size_t at, int32_t some, hvd_mpi_request** request) {
      return library_->reduce(comm.handle, in + at * item(), p == comm.rank ? out + at * item() : nullptr, some,
                              number(reduction_.dtype), number(reduction_.op), p, request);
    });
    if (!status.ok()) return status;
    in += count * item();
  }
  return {};
}

// ---- after all requests are done ----

void MpiExecution::finish() {
  if (kind_ == Kind::allgather) return unpack_gathered();
  if (kind_ != Kind::allreduce && kind_ != Kind::reducescatter) return;
  const std::byte* place = staged_;
  for (const Operation* operation : operations_) {
    size_t count = elements(operation->input);
    if (kind_ == Kind::reducescatter) {
      int64_t rows = share_of(operation->input.shape[0], rank_, static_cast<int32_t>(shares_.size()));
      count = static_cast<size_t>(rows) * row_elements(*operation);
    }
    put_out(*operation, staged_ != nullptr ? place : operation->output.data, count);
    place += count * item();
  }
}

void MpiExecution::unpack_gathered() {
  if (staged_ == nullptr) return;
  const std::byte* place = staged_;
  std::vector<std::byte*> to;
  for (const Operation* operation : operations_) to.push_back(operation->output.data);
  for (size_t p = 0; p < shares_.size(); p++) {
    for (size_t i = 0; i < operations_.size(); i++) {
      const Operation& operation = *operations_[i];
      size_t bytes = static_cast<size_t>(operation.received_rows[p]) * row_bytes(operation);
      hvd::copy(to[i], place, bytes);
      to[i] += bytes;
      place += bytes;
    }
  }
}

}  // namespace hvd
