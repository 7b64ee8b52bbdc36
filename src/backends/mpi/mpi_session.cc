#include "backends/mpi/mpi_session.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "backends/mpi/process_manager.h"
#include "base/log.h"
#include "base/watchdog.h"
#include "collectives/kernels.h"

namespace hvd {
namespace {

constexpr int kTag = 100;

// For reductions that MPI would round, or whose NaNs it would treat, differently from the built-in backend.
void reduce_pair(int32_t dtype, int32_t op, const void* in, void* inout, int32_t count) {
  const std::byte* sources[] = {static_cast<const std::byte*>(in), static_cast<const std::byte*>(inout)};
  reduce(static_cast<DType>(dtype), static_cast<ReduceOp>(op), static_cast<std::byte*>(inout), sources,
         static_cast<size_t>(count));
}

// Reports at the deadline why the process ends.
Watchdog watch(const char* call, TimePoint deadline) {
  return {deadline,
          fmt::format("{} is waiting for ranks of MPI that did not reach it in time (HOROVOD_START_TIMEOUT): a "
                      "rank has not called hvd.init(), hangs, or cannot be reached by MPI. The call cannot be "
                      "interrupted, so this process ends",
                      call)};
}

}  // namespace

Result<std::unique_ptr<MpiSession>> MpiSession::open(const std::string& library) {
  auto loaded = MpiLibrary::load(library);
  if (!loaded.ok()) return loaded.status();
  return std::unique_ptr<MpiSession>(new MpiSession(std::move(*loaded)));
}

Status MpiSession::start(bool threads, TimePoint deadline) {
  int32_t started = 0, ended = 0;
  if (Status status = library_.check(library_->is_started(&started, &ended), "MPI_Initialized"); !status.ok())
    return status;
  if (ended != 0 || has_left_) {
    return {
        Code::invalid_argument,
        "MPI has been finalised in this process and cannot be started again; call hvd.init() before MPI.Finalize()"};
  }
  if (started == 0) {
    int32_t wanted = threads ? HVD_MPI_MULTIPLE : HVD_MPI_SINGLE;
    Watchdog watchdog = watch("MPI_Init_thread", deadline);
    if (Status status = library_.check(library_->start(wanted, &level_), "MPI_Init_thread"); !status.ok())
      return status;
    started_by_ = ::getpid();
    log_info("started {} with thread level {}", library_.short_version(), level_);
  } else if (Status status = library_.check(library_->thread_level(&level_), "MPI_Query_thread"); !status.ok()) {
    return status;
  }
  process_ = ::getpid();
  if (is_prepared_) return {};
  is_prepared_ = true;
  return library_.check(library_->prepare(reduce_pair), "MPI_Op_create");
}

Status MpiSession::usable() const {
  if (!spoiled_.ok()) {
    return {spoiled_.code(), fmt::format("MPI can no longer be used in this process: {}", spoiled_.message()),
            spoiled_.origin()};
  }
  int32_t started = 0, ended = 0;
  if (Status status = library_.check(library_->is_started(&started, &ended), "MPI_Initialized"); !status.ok())
    return status;
  if (has_left_) return {Code::unknown, "Horovod has ended MPI in this process, which is about to end"};
  if (ended != 0) return {Code::unknown, "the script has finalised MPI (MPI.Finalize()) while Horovod uses it"};
  return {};
}

void MpiSession::spoil(const Status& why) {
  if (spoiled_.ok()) spoiled_ = why;
}

// MPICH before 4.2 over UCX's TCP can hang in MPI_Finalize (pmodels/mpich#6596). There each rank flushes its
// connections, which needs an answer from each peer, and then blocks in a barrier of the process manager, where it
// answers nothing. If a rank got its answers and blocks before it has answered its peer, the peer waits forever. No
// order of calls avoids that, so MPI_Finalize is not called: the ranks synchronise through the process manager, which
// moves no MPI data, and report themselves that they have ended. The MPI barrier before that lets all of MPI's own
// traffic finish while every rank still answers.
bool MpiSession::leave(int process_manager) {
  if (process_manager < 0 || !library_.finalize_can_hang() || !library_.speaks_pmi_1()) return false;
  hvd_mpi_request* request = nullptr;
  int32_t done = 0;
  if (!comms_.empty() && library_->barrier(comms_.front()->handle, &request) == 0) {
    // The last rank may arrive hours later, and MPI offers nothing to sleep on.
    while (done == 0 && library_->test(request, &done) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (Status status = leave_process_manager(process_manager); !status.ok()) {
    log_warning("MPI is ended by MPI_Finalize, which can hang: {}", status.message());
    return false;
  }
  return true;
}

void MpiSession::end(int process_manager) {
  int32_t started = 0, ended = 0;
  bool is_running = library_->is_started(&started, &ended) == 0 && started != 0 && ended == 0 && !has_left_;
  if (!is_running || process_ != ::getpid()) return;
  if (spoiled_.ok()) {
    if (started_by_ != ::getpid()) return;
    has_left_ = leave(process_manager);
    if (!has_left_) (void)library_->end();
    return;
  }
  if (started_by_ == ::getpid()) return;  // mpirun detects that MPI was not finalised, and ends the job
  log_error("ending the job: {}", spoiled_.message());
  library_->abort(1);
}

// ---- communicators ----

Result<MpiComm*> MpiSession::keep(hvd_mpi_comm* handle) {
  auto comm = std::make_unique<MpiComm>(MpiComm{.handle = handle});
  if (Status status = library_.check(library_->comm_place(handle, &comm->rank, &comm->size), "MPI_Comm_rank");
      !status.ok())
    return status;
  return comms_.emplace_back(std::move(comm)).get();
}

// Null: there is none with the same ranks. All ranks of `view` get the same answer, because they created all of them
// together.
Result<MpiComm*> MpiSession::find_same(hvd_mpi_comm* view) {
  for (const std::unique_ptr<MpiComm>& comm : comms_) {
    int32_t same = 0;
    Status status = library_.check(library_->comm_same_ranks(view, comm->handle, &same), "MPI_Comm_compare");
    if (!status.ok()) return status;
    if (same != 0) return comm.get();
  }
  return nullptr;
}

Result<MpiComm*> MpiSession::duplicate(hvd_mpi_comm* view, TimePoint deadline) {
  hvd_mpi_comm* made = nullptr;
  hvd_mpi_request* request = nullptr;
  Status status = library_.check(library_->comm_duplicate(view, &made, &request), "MPI_Comm_idup");
  if (status.ok()) status = finish(request, deadline, "hvd.init()");
  if (status.ok()) status = library_.check(library_->comm_keep(made), "MPI_Comm_set_errhandler");
  if (!status.ok()) return status;
  return keep(made);
}

Result<MpiPlace> MpiSession::world_place() const {
  hvd_mpi_comm* view = nullptr;
  if (Status status = library_.check(library_->comm_view(nullptr, &view), "MPI_Comm"); !status.ok()) return status;
  MpiPlace place;
  Status status = library_.check(library_->comm_place(view, &place.rank, &place.size), "MPI_Comm_size");
  library_->comm_forget(view);
  if (!status.ok()) return status;
  return place;
}

Result<MpiComm*> MpiSession::communicator(const void* handle, const std::vector<int32_t>& ranks, TimePoint deadline) {
  if (Status status = usable(); !status.ok()) return status;
  hvd_mpi_comm* view = nullptr;
  if (Status status = library_.check(library_->comm_view(handle, &view), "MPI_Comm"); !status.ok()) return status;
  auto found = [&]() -> Result<MpiComm*> {
    if (!ranks.empty()) {
      auto checked = check_ranks(view, ranks);
      if (!checked.ok()) return checked.status();
      return make_part(view, nullptr, *checked, deadline);
    }
    auto same = find_same(view);
    return same.ok() && *same == nullptr ? duplicate(view, deadline) : same;
  }();
  library_->comm_forget(view);
  return found;
}

// MPI would end the program for an invalid rank. A process that is not among the ranks gets a world of its own.
Result<std::vector<int32_t>> MpiSession::check_ranks(hvd_mpi_comm* view, const std::vector<int32_t>& ranks) const {
  int32_t rank = 0, size = 0;
  if (Status status = library_.check(library_->comm_place(view, &rank, &size), "MPI_Comm_rank"); !status.ok())
    return status;
  bool has_this = false;
  for (size_t i = 0; i < ranks.size(); i++) {
    bool is_new = std::find(ranks.begin(), ranks.begin() + static_cast<int64_t>(i), ranks[i]) - ranks.begin() ==
                  static_cast<int64_t>(i);
    if (ranks[i] < 0 || ranks[i] >= size || !is_new) {
      return Status(Code::invalid_argument,
                    fmt::format("comm names rank {}, but MPI's ranks are 0 to {}, each once", ranks[i], size - 1));
    }
    has_this = has_this || ranks[i] == rank;
  }
  if (has_this) return ranks;
  log_warning("comm does not name this process, which is rank {} of MPI: it is alone in a world of its own", rank);
  return std::vector<int32_t>{rank};
}

Result<MpiComm*> MpiSession::part_of(const MpiComm& whole, const std::vector<int32_t>& ranks, TimePoint deadline) {
  return make_part(whole.handle, &whole, ranks, deadline);
}

// The ranks call this in the order of plans, or of hvd.init(): MPI only waits for ranks that will arrive, unless one
// hangs.
Result<MpiComm*> MpiSession::make_part(hvd_mpi_comm* of, const MpiComm* whole, const std::vector<int32_t>& ranks,
                                       TimePoint deadline) {
  for (const std::unique_ptr<MpiComm>& comm : comms_) {
    if (comm->whole == whole && comm->ranks == ranks) return comm.get();
  }
  hvd_mpi_comm* made = nullptr;
  Watchdog watchdog = watch("MPI_Comm_create_group", deadline);
  int code = library_->comm_of_ranks(of, ranks.data(), static_cast<int32_t>(ranks.size()), kTag, &made);
  if (Status status = library_.check(code, "MPI_Comm_create_group"); !status.ok()) return status;
  auto kept = keep(made);
  if (!kept.ok()) return kept;
  (*kept)->whole = whole;
  (*kept)->ranks = ranks;
  return kept;
}

Result<MpiComm> MpiSession::host_of(const MpiComm& whole, TimePoint deadline) {
  MpiComm host;
  Watchdog watchdog = watch("MPI_Comm_split_type", deadline);
  Status status = library_.check(library_->comm_of_host(whole.handle, &host.handle), "MPI_Comm_split_type");
  if (status.ok()) status = library_.check(library_->comm_place(host.handle, &host.rank, &host.size), "MPI_Comm_rank");
  if (!status.ok()) return status;
  return host;
}

// ---- waiting ----

Status MpiSession::finish(hvd_mpi_request* request, TimePoint deadline, const char* what) {
  for (;;) {
    int32_t done = 0;
    if (Status status = library_.check(library_->test(request, &done), what); !status.ok()) return status;
    if (done != 0) return {};
    if (Clock::now() >= deadline) break;
    ::sched_yield();  // MPI makes no progress on its own, and offers nothing to sleep on
  }
  Status late(Code::unknown, fmt::format("not all ranks of MPI reached {} in time (HOROVOD_START_TIMEOUT)", what));
  spoil(late);
  return late;
}

Status MpiSession::allgather(const MpiComm& comm, const void* mine, int32_t bytes, void* all, TimePoint deadline) {
  std::vector<int32_t> counts(static_cast<size_t>(comm.size), bytes), offsets(counts.size());
  for (size_t i = 1; i < offsets.size(); i++) offsets[i] = offsets[i - 1] + bytes;
  hvd_mpi_request* request = nullptr;
  int code = library_->allgather(comm.handle, mine, bytes, all, counts.data(), offsets.data(), &request);
  if (Status status = library_.check(code, "MPI_Iallgatherv"); !status.ok()) return status;
  return finish(request, deadline, "hvd.init()");
}

Status MpiSession::broadcast(const MpiComm& comm, int32_t root, void* data, int32_t bytes, TimePoint deadline) {
  hvd_mpi_request* request = nullptr;
  int code = library_->broadcast(comm.handle, data, bytes, root, &request);
  if (Status status = library_.check(code, "MPI_Ibcast"); !status.ok()) return status;
  return finish(request, deadline, "hvd.init()");
}

}  // namespace hvd
