// MPI in this process, from start to end: which process started it, its communicators, and whether it is still usable.
// Every call that waits for other ranks has a deadline; if MPI cannot be interrupted, the process then ends, with the
// cause on stderr. Collectives cannot be cancelled in MPI: if ranks did not finish one, MPI is *spoiled*. It is then
// not called any more, not even at the end, where it would wait forever. Thread rule: one caller at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/mpi/mpi_library.h"
#include "base/clock.h"

namespace hvd {

// A communicator for Horovod alone. It is kept until the process ends: a world of the same ranks reuses it.
struct MpiComm {
  hvd_mpi_comm* handle = nullptr;
  int32_t rank = 0, size = 1;
  const MpiComm* whole = nullptr;  // the communicator it is a part of; null: MPI_COMM_WORLD, or it is not a part
  std::vector<int32_t> ranks;      // of the whole; empty: all
};

struct MpiPlace {
  int32_t rank = 0, size = 1;
};

class MpiSession {
 public:
  static Result<std::unique_ptr<MpiSession>> open(const std::string& library);

  const MpiLibrary& library() const { return library_; }
  // Starts MPI if it is not running. `threads`: request MPI_THREAD_MULTIPLE.
  Status start(bool threads, TimePoint deadline);
  bool threads_supported() const { return level_ == HVD_MPI_MULTIPLE; }
  Status usable() const;  // not ok: spoiled, not started, or ended by the script

  Result<MpiPlace> world_place() const;  // in MPI_COMM_WORLD
  // Collective over the communicator at that address (null: MPI_COMM_WORLD). `ranks`: use only these; only they call
  // it.
  Result<MpiComm*> communicator(const void* handle, const std::vector<int32_t>& ranks, TimePoint deadline);
  // Collective over those ranks of `whole`.
  Result<MpiComm*> part_of(const MpiComm& whole, const std::vector<int32_t>& ranks, TimePoint deadline);
  // Collective over all of `whole`: returns the ranks that share memory with this one. The caller discards its handle.
  Result<MpiComm> host_of(const MpiComm& whole, TimePoint deadline);

  // Waits for the request. Not ok after the deadline: MPI is spoiled.
  Status finish(hvd_mpi_request* request, TimePoint deadline, const char* what);
  Status allgather(const MpiComm& comm, const void* mine, int32_t bytes, void* all, TimePoint deadline);
  Status broadcast(const MpiComm& comm, int32_t root, void* data, int32_t bytes, TimePoint deadline);

  void spoil(const Status& why);
  // Call before the process ends: ends MPI if this session started it. If MPI is spoiled and was started by the script:
  // ends the job, because the script's MPI_Finalize would hang. Not in a forked child. `process_manager`: the
  // descriptor of the program that started the ranks, or -1.
  void end(int process_manager);

 private:
  explicit MpiSession(MpiLibrary library) : library_(std::move(library)) {}
  bool leave(int process_manager);  // false: MPI_Finalize must end MPI
  Result<MpiComm*> keep(hvd_mpi_comm* handle);
  Result<std::vector<int32_t>> check_ranks(hvd_mpi_comm* view, const std::vector<int32_t>& ranks) const;
  Result<MpiComm*> make_part(hvd_mpi_comm* of, const MpiComm* whole, const std::vector<int32_t>& ranks,
                             TimePoint deadline);
  Result<MpiComm*> find_same(hvd_mpi_comm* view);
  Result<MpiComm*> duplicate(hvd_mpi_comm* view, TimePoint deadline);

  MpiLibrary library_;
  int32_t level_ = HVD_MPI_SINGLE;
  bool is_prepared_ = false;
  int64_t started_by_ = 0;  // the process that started MPI; 0: the script
  int64_t process_ = 0;     // the process that uses it
  bool has_left_ = false;   // without MPI_Finalize
  Status spoiled_;
  std::vector<std::unique_ptr<MpiComm>> comms_;
};

}  // namespace hvd
