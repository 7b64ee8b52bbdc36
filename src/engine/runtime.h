// The only mutable global of the library: the engine behind the C ABI, its start, its end, and the effects of fork.
// Thread rule: any thread.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "backends/mpi/mpi_session.h"
#include "engine/engine.h"
#include "rendezvous/membership.h"

namespace hvd {

class Runtime {
 public:
  static Runtime& instance();  // never destroyed: a thread may still be inside at exit

  // Collective. Does nothing if already initialised. `sets` become the process sets 1, 2, ...
  Status init(const std::vector<std::vector<int32_t>>& sets);
  Status shutdown();  // not ok: called from a callback
  // The engine, or an error if there is none. The engine stays valid while the caller holds it.
  Result<std::shared_ptr<Engine>> engine() const;
  bool is_initialized() const;

  // ---- how it failed; see hvd_world_failure and hvd_report_end ----
  Origin world_failure() const;  // kind none: it has not failed
  bool is_own(const Origin& origin) const;
  void report_end(Origin origin, bool is_own);

  // ---- MPI; see horovod.h ----
  Status load_mpi(const std::string& library);  // empty: HOROVOD_MPI_LIBRARY. Does nothing if one is loaded
  std::string mpi_version() const;              // of the plugin; empty: none is loaded
  // Uses the communicator at this address (null: MPI_COMM_WORLD), or these ranks of it, for the next world.
  Status use_mpi(const void* communicator, std::vector<int32_t> ranks);
  // For the next world, if an MPI launcher started the ranks of one host: this rank can use MPI, or why not. MPI is
  // used if all ranks can use it.
  Status offer_mpi(std::string obstacle, std::vector<int32_t> ranks);
  bool mpi_enabled() const;          // this world met over MPI, or MPI moves its data
  std::string mpi_obstacle() const;  // why this world does not use MPI, although an MPI launcher started its ranks
  bool gloo_enabled() const;         // the engine itself moves this world's data
  bool mpi_threads_supported() const;
  void end_mpi(bool failed);

  // For an elastic job; connects to the launcher on first use. precondition: this is not an elastic worker.
  Result<std::shared_ptr<Membership>> membership();
  std::shared_ptr<Membership> current_membership() const;  // null: none, or never used

  // Keeps the engine and its handles in place during a non-blocking call; other callers hold the engine itself.
  class Visit {
   public:
    explicit Visit(const Runtime& runtime) : runtime_(runtime), lock_(runtime.mutex_) {}
    Engine* engine() const { return runtime_.engine_.get(); }  // null: see why_none()
    std::shared_ptr<Engine> hold() const { return runtime_.engine_; }
    // The same, or the engine that is being shut down and may still use the memory of operations.
    std::shared_ptr<Engine> hold_to_wait() const { return runtime_.engine_ ? runtime_.engine_ : runtime_.ending_; }
    Status why_none() const;
    // Those of the last engine; they stay valid after shutdown, until the next init. Null: none.
    OperationTable* operations() const { return runtime_.operations_.get(); }

   private:
    const Runtime& runtime_;
    std::shared_lock<std::shared_mutex> lock_;
  };

  // Collective over the world; see horovod.h.
  Result<int32_t> add_process_set(std::vector<int32_t> ranks);
  Result<bool> remove_process_set(int32_t id);
  // By the members alone. The operation whose handle this returns has the id of the set as its result.
  Result<int64_t> form_process_set(std::vector<int32_t> ranks);
  // By all members, at any time: the set is removed after the last one. Does not wait for the others.
  Status leave_process_set(int32_t id);

 private:
  struct WantedMpi {
    const void* communicator = nullptr;
    std::vector<int32_t> ranks;
  };
  struct OfferedMpi {
    std::string obstacle;  // empty: none
    std::vector<int32_t> ranks;
  };

  Runtime();
  Result<std::shared_ptr<Engine>> create_engine();
  Result<std::shared_ptr<Engine>> create_elastic_engine(Config config);
  Result<std::shared_ptr<Engine>> create_engine_of(const Config& config, Generation generation, int interrupt,
                                                   const MakePolled& make_polled = nullptr);
  Result<std::shared_ptr<Engine>> create_mpi_engine(Config config, const WantedMpi& wanted);
  // Starts MPI for the engine of one host if all its ranks can; returns that engine, or one for `offered.ranks`.
  Result<std::shared_ptr<Engine>> join_mpi(std::shared_ptr<Engine> engine, Config config, OfferedMpi offered);
  Status start_mpi(const Config& config);  // also checks that its ranks are those of the world
  Result<std::shared_ptr<Membership>> membership_by(const Config& config);
  Status open_mpi(const std::string& path);  // requires life_mutex_, like the next one
  void shutdown_locked();
  Status may_change_sets() const;
  Status add_static_sets(Engine& engine, const std::vector<std::vector<int32_t>>& sets);
  void note_descriptors();  // before a fork
  void leave_child();       // in a forked child: the world belongs to the parent

  std::mutex life_mutex_;            // one init or shutdown at a time
  std::mutex joining_mutex_;         // one connection to the launcher at a time
  mutable std::shared_mutex mutex_;  // guards the members below
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Engine> ending_;  // while it is being shut down
  std::shared_ptr<OperationTable> operations_;
  std::vector<int> descriptors_;            // closed by a forked child
  std::shared_ptr<StoreServer> store_;      // if this process hosts it: for all generations
  std::shared_ptr<Membership> membership_;  // in an elastic job: for all generations
  std::unique_ptr<MpiSession> mpi_;         // from the first use of MPI
  std::optional<WantedMpi> wanted_mpi_;     // for the next world
  std::optional<OfferedMpi> offered_mpi_;   // for the next world
  std::string mpi_obstacle_;                // of this world
  bool mpi_enabled_ = false, mpi_carries_ = false;
  bool dynamic_process_sets_ = false;
  bool forked_ = false;
  uint64_t generations_ = 0;
  int32_t rank_ = -1;  // in the current or last world; guarded by mutex_
  std::once_flag reported_;
  const int report_pipe_;  // to the launcher; -1: none
  Status last_end_;        // failure of the previous world; ok: none. Guarded by life_mutex_
};

}  // namespace hvd
