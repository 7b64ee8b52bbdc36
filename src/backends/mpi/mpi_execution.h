// A plan in progress in MPI: its requests, their buffers, and the remaining work after they are done. A fused plan has
// *staging* memory, where its tensors are contiguous; single tensors are used in place. MPI counts with int: more than
// `most` elements (bytes, if nothing is computed) are split into pieces, or use another algorithm if MPI needs
// everything in one call. Thread rule: the thread that drives.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/mpi/mpi_session.h"
#include "collectives/collectives.h"

namespace hvd {

// Memory that is reused between plans: touching new pages costs more than copying into them.
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

  // Posts everything, for a new plan. Not ok: MPI is in an unknown state.
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
  // For data too large for one call.
  Status gather_by_broadcasts(const MpiComm& comm, const std::byte* mine, std::byte* all);
  Status exchange_in_pieces(const MpiComm& comm, size_t row);
  Status reduce_to_each(const MpiComm& comm, const std::byte* in, std::byte* out);

  Result<std::byte*> pack_by_receiver(int32_t ranks);
  void finish();
  void unpack_gathered();
  void take_in(std::byte* place, const std::byte* data, size_t count) const;             // applies the prescale factor
  void put_out(const Operation& operation, const std::byte* place, size_t count) const;  // applies the postscale factor

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
  std::vector<int32_t> counts_, offsets_, more_counts_, more_offsets_;  // MPI reads them until the request is done
  std::vector<hvd_mpi_request*> requests_;
  size_t tested_ = 0;  // requests that are done
  Staging in_, out_;
  std::byte* staged_ = nullptr;  // where the results are, if not in their destination
};

}  // namespace hvd
