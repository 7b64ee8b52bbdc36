// A plan under way in MPI: its requests, their buffers, and what is left to do once they are done. A fused plan has
// *staging* memory, where its tensors lie side by side; single tensors are read and written where they are.
// MPI counts with int: what is larger than `most` elements (bytes, where nothing is computed) goes in pieces, or, where
// MPI wants all of it in one call, in another way. Thread rule: the thread that drives.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/mpi/mpi_session.h"
#include "collectives/collectives.h"

namespace hvd {

// Memory that is kept from plan to plan: pages that were never touched cost more than what is copied into them.
class Staging {
 public:
  Result<std::byte*> take(size_t bytes);

 private:
  std::unique_ptr<std::byte, FreeBytes> memory_;
  size_t bytes_ = 0;
};

class MpiExecution {
 public:
  MpiExecution(const MpiLibrary& library, size_t most) : library_(library), most_(most) {}

  // Posts everything, for another plan than before. Not ok: MPI is in an unknown state.
  Status start(const Plan& plan, std::span<Operation* const> operations, const MpiComm& comm,
               const Reduction& reduction);
  Result<bool> test();  // true: done, and the results are in place

  std::string name;  // of its first tensor, for reports
  TimePoint since{};
  Backend::Done done;

 private:
  Status post(const MpiComm& comm);
  Status allreduce(const MpiComm& comm);
  Status allgather(const MpiComm& comm);
  Status broadcast(const MpiComm& comm);
  Status alltoall(const MpiComm& comm);
  Status reducescatter(const MpiComm& comm);
  // For what is too large for one call.
  Status gather_by_broadcasts(const MpiComm& comm, const std::byte* mine, std::byte* all);
  Status exchange_in_pieces(const MpiComm& comm, size_t row);
  Status reduce_to_each(const MpiComm& comm, const std::byte* in, std::byte* out);

  Result<std::byte*> pack_by_receiver(int32_t ranks);
  void finish();
  void unpack_gathered();
  void take_in(std::byte* place, const std::byte* data, size_t count) const;             // with the factor before
  void put_out(const Operation& operation, const std::byte* place, size_t count) const;  // with the factor after

  bool is_fused() const { return operations_.size() > 1; }
  size_t item() const { return size_of(reduction_.dtype); }
  bool is_slow_in_place(const MpiComm& comm, size_t bytes) const;
  // Calls post(offset, count, request) for pieces of at most `most`.
  template <class Post>
  Status post_pieces(size_t count, size_t most, const char* call, Post&& post);
  Status posted(int code, const char* call, hvd_mpi_request* request);

  const MpiLibrary& library_;
  const size_t most_;
  Kind kind_ = Kind::allreduce;
  int32_t rank_ = 0;
  Reduction reduction_;
  std::vector<Operation*> operations_;
  std::vector<size_t> shares_;  // of each rank: bytes of allgather, elements of reducescatter
  std::vector<int32_t> counts_, offsets_, more_counts_, more_offsets_;  // MPI reads them until it is done
  std::vector<hvd_mpi_request*> requests_;
  size_t tested_ = 0;  // requests that are done
  Staging in_, out_;
  std::byte* staged_ = nullptr;  // where the results lie, if they are not in their places
};

}  // namespace hvd
