// The MPI part of Runtime: the next world, how its ranks meet, and the end of MPI.
#include <fmt/core.h>

#include "backends/mpi/mpi_backend.h"
#include "base/log.h"
#include "engine/mpi_meeting.h"
#include "engine/runtime.h"

namespace hvd {
namespace {

// A world of one instead of many results from the mpirun of another MPI, or from srun without --mpi.
Status check_size(const Config& config, int32_t size, const MpiLibrary& library) {
  int32_t told = std::max(config.started_size, config.size);
  if (told <= 1 || told == size) return {};
  std::string remedy = "not by the mpirun of this MPI, it seems. Start them with its mpirun";
  if (config.started_by == "srun") {
    bool is_open = std::string_view(library->compiled_for) == "Open MPI";
    remedy = fmt::format(
        "by srun, which gave this MPI no information about the others. Start them with srun --mpi={} (srun --mpi=list "
        "names what "
        "this Slurm has)",
        is_open ? "pmix" : "pmi2, or --mpi=pmix if this MPI was built for that");
  }
  return {Code::invalid_argument,
          fmt::format("{} says that there are {} processes, but {} were started: {}, or choose the other MPI with "
                      "HOROVOD_MPI_HOME or HOROVOD_MPI_LIBRARY, or leave comm, HOROVOD_CONTROLLER and "
                      "HOROVOD_CPU_OPERATIONS unset; HOROVOD_SIZE=1 is for processes that are to be alone",
                      library.short_version(), size, told, remedy)};
}

// The lowest rank that has something in its way, or -1. Collective.
Result<int32_t> first_with_obstacle(Engine& engine, bool has_obstacle) {
  int32_t size = engine.world().size, farthest = has_obstacle ? size - engine.world().rank : 0;
  TensorView view{.data = reinterpret_cast<std::byte*>(&farthest), .dtype = DType::i32, .shape = {1}};
  TaskRef task = make_task(1);
  task->operations[0].request = {
      .name = "mpi.obstacles", .reduce_op = ReduceOp::max, .dtype = view.dtype, .shape = view.shape};
  task->operations[0].input = task->operations[0].output = view;
  if (Status status = engine.submit(task, true); !status.ok()) return status;
  engine.wait(task, kNever);
  engine.operations()->release(task->handle);
  if (!task->status.ok()) return task->status;
  return farthest == 0 ? -1 : size - farthest;
}

MpiBackendSettings backend_settings(const Config& config, Transport& transport) {
  return {.most = static_cast<size_t>(config.mpi_chunk),
          .stall_warning = config.stall_check ? seconds(config.stall_warning_time) : Duration{},
          .timeout = seconds(config.collective_timeout),
          .start_timeout = seconds(config.start_timeout),
          .rank_name = transport.rank_name(config.rank),
          .fail_world = [&transport](const Status& status) { transport.abort(status); }};
}

}  // namespace

Status Runtime::load_mpi(const std::string& library) {
  std::lock_guard life(life_mutex_);
  if (!library.empty()) return open_mpi(library);
  auto config = config_from_environment();
  if (!config.ok()) return config.status();
  return open_mpi(config->mpi_library);
}

Status Runtime::open_mpi(const std::string& path) {
  if (mpi_ != nullptr) return {};
  if (path.empty()) {
    return {Code::invalid_argument,
            "MPI is requested, but HOROVOD_MPI_LIBRARY does not name its plugin; set it to the path that horovodrun "
            "--build-mpi "
            "prints"};
  }
  auto session = MpiSession::open(path);
  if (!session.ok()) return session.status();
  std::unique_lock lock(mutex_);
  mpi_ = std::move(*session);
  return {};
}

std::string Runtime::mpi_version() const {
  std::shared_lock lock(mutex_);
  return mpi_ != nullptr ? mpi_->library().version() : "";
}

Status Runtime::use_mpi(const void* communicator, std::vector<int32_t> ranks) {
  std::lock_guard life(life_mutex_);
  if (mpi_ == nullptr) return {Code::invalid_argument, "the MPI plugin is not loaded; call hvd_mpi_load first"};
  wanted_mpi_ = {communicator, std::move(ranks)};
  return {};
}

Status Runtime::offer_mpi(std::string obstacle, std::vector<int32_t> ranks) {
  std::lock_guard life(life_mutex_);
  if (obstacle.empty() && mpi_ == nullptr)
    return {Code::invalid_argument, "the MPI plugin is not loaded; call hvd_mpi_load first"};
  offered_mpi_ = {std::move(obstacle), std::move(ranks)};
  return {};
}

std::string Runtime::mpi_obstacle() const {
  Visit visit(*this);
  return visit.engine() != nullptr ? mpi_obstacle_ : "";
}

bool Runtime::mpi_enabled() const { return Visit(*this).engine() != nullptr && mpi_enabled_; }
bool Runtime::gloo_enabled() const { return Visit(*this).engine() != nullptr && !mpi_carries_; }
bool Runtime::mpi_threads_supported() const { return mpi_enabled() && mpi_->threads_supported(); }

void Runtime::end_mpi(bool failed) {
  std::lock_guard life(life_mutex_);
  if (mpi_ == nullptr || forked_) return;
  shutdown_locked();
  if (failed) mpi_->spoil({Code::unknown, "an operation of Horovod has failed in this process"});
  mpi_->end(process_manager_from_environment());
}

Status Runtime::start_mpi(const Config& config) {
  TimePoint deadline = after(Clock::now(), seconds(config.start_timeout));
  if (Status status = mpi_->usable(); !status.ok()) return status;
  if (Status status = mpi_->start(config.mpi_threads, deadline); !status.ok()) return status;
  auto place = mpi_->world_place();
  if (!place.ok()) return place.status();
  if (Status status = check_size(config, place->size, mpi_->library()); !status.ok()) return status;
  if (place->rank == config.rank) return {};
  return {Code::invalid_argument,
          fmt::format("{} says that this is rank {}, and {} that it is rank {}", mpi_->library().short_version(),
                      place->rank, config.started_by, config.rank)};
}

// Ranks of one host meet without MPI. So they first compare their obstacles, and none starts MPI, which would wait for
// all, before it is known that all will.
Result<std::shared_ptr<Engine>> Runtime::join_mpi(std::shared_ptr<Engine> engine, Config config, OfferedMpi offered) {
  std::string& obstacle = offered.obstacle;
  for (bool is_started : {false, true}) {
    if (is_started)
      if (Status status = start_mpi(config); !status.ok()) obstacle = status.message();
    auto first = first_with_obstacle(*engine, !obstacle.empty());
    if (!first.ok()) return first.status();
    if (*first < 0) continue;
    if (obstacle.empty()) obstacle = fmt::format("rank {} cannot use it; see its log", *first);
    log_info("rank {} continues without MPI: {}", config.rank, obstacle);
    mpi_obstacle_ = obstacle;
    return engine;
  }
  mpi_enabled_ = true;
  if (offered.ranks.empty()) return engine;
  engine->shutdown();
  return create_mpi_engine(std::move(config), {.communicator = nullptr, .ranks = std::move(offered.ranks)});
}

Result<std::shared_ptr<Engine>> Runtime::create_mpi_engine(Config config, const WantedMpi& wanted) {
  if (config.elastic) {
    return Status(Code::invalid_argument,
                  "an elastic job cannot use MPI, whose worlds neither grow nor shrink; start it with horovodrun, and "
                  "leave HOROVOD_CONTROLLER and HOROVOD_CPU_OPERATIONS unset");
  }
  if (Status status = open_mpi(config.mpi_library); !status.ok()) return status;
  TimePoint deadline = after(Clock::now(), seconds(config.start_timeout));
  if (Status status = mpi_->start(config.mpi_threads, deadline); !status.ok()) return status;
  auto place = mpi_->world_place();
  if (!place.ok()) return place.status();
  if (Status status = check_size(config, place->size, mpi_->library()); !status.ok()) return status;
  auto comm = mpi_->communicator(wanted.communicator, wanted.ranks, deadline);
  if (!comm.ok()) return comm.status();
  auto met = meet_by_mpi(*mpi_, **comm, std::move(config), Generation{generations_++}, deadline);
  if (!met.ok()) return met.status();
  store_ = std::move(met->store);
  MakePolled make_polled;
  if (mpi_carries_) {
    make_polled = [&](const BackendContext& context, Transport& transport) {
      return Result<std::unique_ptr<PolledBackend>>(
          std::make_unique<MpiBackend>(*mpi_, **comm, context, backend_settings(met->config, transport)));
    };
  }
  log_info("rank {} of {} met over {}; data are moved by {}", met->config.rank, met->config.size,
           mpi_->library().short_version(), mpi_carries_ ? "MPI" : "the engine");
  return create_engine_of(met->config, met->generation, -1, make_polled);
}

}  // namespace hvd
