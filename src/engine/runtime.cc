#include "engine/runtime.h"

#include <fmt/core.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/end_report.h"
#include "base/host_name.h"
#include "base/joined.h"
#include "base/log.h"
#include "engine/gpu_agreement.h"
#include "model/scheduler.h"
#include "rendezvous/report_store.h"
#include "rendezvous/world.h"
#include "rendezvous/world_meeting.h"
#include "transport/shared_memory.h"

namespace hvd {
namespace {

Status not_initialized() { return {Code::not_initialized, "Horovod has not been initialized; use hvd.init()."}; }

Status forked_away() {
  return {Code::not_initialized,
          "this process was forked from one that had called hvd.init(); Horovod belongs to the parent. Call hvd.init() "
          "only "
          "in the processes that horovodrun starts, or start children with the spawn method"};
}

Status check_ranks(const std::vector<int32_t>& sorted, int32_t world_size) {
  if (sorted.empty()) return {Code::invalid_argument, "a process set needs at least one rank"};
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return {Code::invalid_argument, "a process set names a rank twice"};
  }
  if (sorted.front() < 0 || sorted.back() >= world_size) {
    return {Code::invalid_argument, fmt::format("a process set names rank {}, but the ranks are 0 to {}",
                                                sorted.front() < 0 ? sorted.front() : sorted.back(), world_size - 1)};
  }
  return {};
}

std::string why_not_offered(const Config& config) {
  return config.controller == "gloo" ? "HOROVOD_CONTROLLER=gloo" : "the program has not loaded the MPI plugin";
}

bool is_elastic_worker(const Config& config) {
  return config.elastic && config.worker_id >= 0 && !config.rendezvous_addr.empty();
}

void take_place(Config& config, const Place& place) {
  config.rank = place.rank;
  config.size = place.size;
  config.local_rank = place.local_rank;
  config.local_size = place.local_size;
  config.cross_rank = place.cross_rank;
  config.cross_size = place.cross_size;
}

constexpr Duration kReportPatience = std::chrono::seconds(2);  // an unreachable launcher must not delay the exit

Status run_alone(Engine& engine, Request request, int32_t& result) {
  TaskRef task = make_task(1);
  task->operations[0].request = std::move(request);
  if (Status status = engine.submit(task, true); !status.ok()) return status;
  engine.wait(task, kNever);
  result = task->operations[0].result;
  engine.operations()->release(task->handle);
  return task->status;
}

Result<int64_t> submit_alone(Engine& engine, Request request) {
  TaskRef task = make_task(1);
  task->operations[0].request = std::move(request);
  if (Status status = engine.submit(task, false); !status.ok()) return status;
  return task->handle;
}

int find_report_pipe() {
  const char* name = std::getenv(kReportVariable);
  return name == nullptr ? -1 : open_report_pipe(name);
}

const char* look_up(const char* name) { return std::getenv(name); }

// For ranks that mpirun started for horovodrun, on any host. Errors have no effect on this process.
void tell_report_store(EndReport report, const std::string& host) {
  const char* text = std::getenv(kReportStoreVariable);
  if (text == nullptr || !is_worth_telling(report)) return;
  auto store = decode_report_store(text);
  if (!store.ok()) return;
  bool is_own = !report.is_consequence();
  if (Config told; report.rank < 0 && is_own) {  // it failed before it was in a world
    (void)place_by_scheduler(look_up, told);
    if (!told.started_by.empty()) report.rank = report.origin.rank = told.rank;
  }
  if (is_own && report.origin.host.empty()) report.origin.host = host.empty() ? host_name() : host;
  if (Status status = send_report(*store, report, Clock::now() + kReportPatience); !status.ok())
    log_debug("cannot report the end of this rank to the launcher: {}", status.message());
}

Request add_request(std::vector<int32_t> ranks) {
  return {.name = "process_set.add", .kind = Kind::add_process_set, .ranks = std::move(ranks)};
}

}  // namespace

Runtime& Runtime::instance() {
  static Runtime* runtime = new Runtime();
  return *runtime;
}

// Opens the pipe at once, so that programs executed by this one do not inherit it.
Runtime::Runtime() : report_pipe_(find_report_pipe()) {
  ::pthread_atfork([] { instance().note_descriptors(); }, nullptr, [] { instance().leave_child(); });
}

// Connections to other hosts are opened on demand, so the list is made when it is needed.
void Runtime::note_descriptors() {
  std::unique_lock lock(mutex_);
  descriptors_.clear();
  for (const Engine* engine : {engine_.get(), ending_.get()}) {
    if (engine == nullptr) continue;
    std::vector<int> more = engine->descriptors();
    descriptors_.insert(descriptors_.end(), more.begin(), more.end());
  }
  if (membership_ == nullptr) return;
  std::vector<int> more = membership_->descriptors();
  descriptors_.insert(descriptors_.end(), more.begin(), more.end());
}

// Runs in a child that has one thread and must not wait for locks that the parent's other threads held. It must close
// the descriptors: otherwise a child that outlives its parent would hide the parent's death from other ranks.
void Runtime::leave_child() {
  if (engine_ == nullptr && ending_ == nullptr && membership_ == nullptr) return;
  for (int fd : descriptors_) ::close(fd);
  descriptors_.clear();
  new (&mutex_) std::shared_mutex();
  new (&life_mutex_) std::mutex();
  new (&joining_mutex_) std::mutex();
  new std::shared_ptr<Engine>(std::move(engine_));  // leaked: its threads do not exist in the child
  engine_ = nullptr;
  new std::shared_ptr<Engine>(std::move(ending_));
  ending_ = nullptr;
  new std::shared_ptr<OperationTable>(std::move(operations_));
  operations_ = nullptr;
  new std::shared_ptr<Membership>(std::move(membership_));
  membership_ = nullptr;
  forked_ = true;
}

Status Runtime::Visit::why_none() const { return runtime_.forked_ ? forked_away() : not_initialized(); }

Result<std::shared_ptr<Engine>> Runtime::engine() const {
  Visit visit(*this);
  if (visit.engine() == nullptr) return visit.why_none();
  return visit.hold();
}

bool Runtime::is_initialized() const { return Visit(*this).engine() != nullptr; }

Result<std::shared_ptr<Engine>> Runtime::create_engine() {
  std::optional<WantedMpi> wanted = std::exchange(wanted_mpi_, std::nullopt);
  std::optional<OfferedMpi> offered = std::exchange(offered_mpi_, std::nullopt);
  auto config = parse_config([&](const char* name) -> const char* {
    return wanted && std::string_view(name) == "HOROVOD_CONTROLLER" ? "mpi" : std::getenv(name);
  });
  if (!config.ok()) return config.status();
  set_log_settings(config->log);
  mpi_enabled_ = uses_mpi(*config);
  mpi_carries_ = config->cpu_operations == "mpi";
  mpi_obstacle_.clear();
  if (mpi_enabled_) return create_mpi_engine(std::move(*config), wanted.value_or(WantedMpi{}));
  if (is_elastic_worker(*config)) return create_elastic_engine(std::move(*config));
  auto engine = create_engine_of(*config, Generation{generations_++}, -1);
  if (!engine.ok() || config->mpi_launch != MpiLaunch::one_host) return engine;
  if (!offered) offered = OfferedMpi{.obstacle = why_not_offered(*config), .ranks = {}};
  return join_mpi(std::move(*engine), std::move(*config), std::move(*offered));
}

// Forming a world fails if a process dies meanwhile. Then the launcher decides on another world, which may have no
// place for this process.
Result<std::shared_ptr<Engine>> Runtime::create_elastic_engine(Config config) {
  auto membership = membership_by(config);
  if (!membership.ok()) return membership.status();
  // The launcher gives up first, with a reason.
  TimePoint deadline = after(Clock::now(), seconds(config.elastic_timeout) + seconds(config.start_timeout));
  std::string reason(last_end_.message());
  // Silent: a process that was stopped, or an unreachable host; it does not end on its own.
  const Origin& cause = last_end_.origin();
  std::optional<int32_t> silent;
  if (cause.kind == OriginKind::silent && cause.rank >= 0) silent = cause.rank;
  for (;;) {
    auto place = (*membership)->next_place(reason, silent.value_or(-1), deadline);
    if (!place.ok()) return place.status();
    silent.reset();
    take_place(config, *place);
    auto engine = create_engine_of(config, place->generation, (*membership)->voided());
    if (engine.ok() || engine.status().code() == Code::invalid_argument || Clock::now() >= deadline) return engine;
    reason = (*membership)->void_reason();
    if (reason.empty()) reason = engine.status().message();
    log_info("world {} did not form: {}", static_cast<uint64_t>(place->generation), reason);
  }
}

Result<std::shared_ptr<Membership>> Runtime::membership() {
  auto config = config_from_environment();
  if (!config.ok()) return config.status();
  return membership_by(*config);
}

std::shared_ptr<Membership> Runtime::current_membership() const {
  std::shared_lock lock(mutex_);
  return membership_;
}

Result<std::shared_ptr<Membership>> Runtime::membership_by(const Config& config) {
  if (!is_elastic_worker(config)) return Status(Code::precondition, "this process is not a worker of an elastic job");
  std::lock_guard joining(joining_mutex_);
  {
    std::shared_lock lock(mutex_);
    if (forked_) return forked_away();
    if (membership_ != nullptr) return membership_;
  }
  auto credentials = credentials_from_config(config);
  if (!credentials.ok()) return credentials.status();
  auto endpoints = resolve(config.rendezvous_addr, static_cast<uint16_t>(config.rendezvous_port));
  if (!endpoints.ok()) return endpoints.status();
  auto joined = Membership::join(std::move(*endpoints), *credentials, config.worker_id,
                                 after(Clock::now(), seconds(config.start_timeout)));
  if (!joined.ok()) return joined.status();
  std::unique_lock lock(mutex_);
  membership_ = std::move(*joined);
  return membership_;
}

Result<std::shared_ptr<Engine>> Runtime::create_engine_of(const Config& config, Generation generation, int interrupt,
                                                          const MakePolled& make_polled) {
  auto world = world_from_config(config, generation);
  if (!world.ok()) return world.status();
  UniqueFd memory;
  if (world->local_rank == 0) {
    auto created = create_shared_memory(ControlBlock::bytes(world->local_size));
    if (!created.ok()) return created.status();
    memory = std::move(*created);
  }
  auto group = form_world(*world, config, std::move(memory), interrupt);
  if (!group.ok()) return group.status();
  if (group->store) store_ = std::move(group->store);
  if (group->hosts.size() > 1) world->host_of = group->host_of_rank;
  world->crowded = group->crowded;
  auto engine = Engine::create(*world, config, std::move(*group), make_polled);
  if (!engine.ok()) return engine.status();
  dynamic_process_sets_ = config.dynamic_process_sets;
  return std::shared_ptr<Engine>(std::move(*engine));
}

Status Runtime::init(const std::vector<std::vector<int32_t>>& sets) {
  std::lock_guard life(life_mutex_);
  if (is_initialized()) return {};
  if (forked_) return forked_away();
  if (Status status = check_gpus(); !status.ok()) return status;
  auto engine = create_engine();
  if (!engine.ok()) return engine.status();
  {
    std::unique_lock lock(mutex_);
    engine_ = *engine;
    rank_ = engine_->world().rank;
    operations_ = engine_->operations();
  }
  if (Status status = agree_on_gpus(**engine, (*engine)->config()); !status.ok()) {
    log_error("{}", status.message());
    shutdown_locked();
    return status;
  }
  return add_static_sets(**engine, sets);
}

// A set that repeats another one is an error but leaves the world intact; an invalid set, or one that the ranks do not
// agree on, ends it.
Status Runtime::add_static_sets(Engine& engine, const std::vector<std::vector<int32_t>>& sets) {
  std::set<std::vector<int32_t>> seen;
  std::vector<std::vector<int32_t>> sorted_sets;
  Status repeated;
  for (std::vector<int32_t> ranks : sets) {
    std::sort(ranks.begin(), ranks.end());
    Status status = check_ranks(ranks, engine.world().size);
    if (!status.ok()) {
      log_error("{}", status.message());
      shutdown_locked();
      return status;
    }
    bool is_world = ranks.size() == static_cast<size_t>(engine.world().size);
    if (is_world || !seen.insert(ranks).second) {
      repeated = {Code::invalid_argument, "two process sets have the same ranks, or one has those of the global set"};
    }
    sorted_sets.push_back(std::move(ranks));
  }
  if (!repeated.ok()) return repeated;
  for (std::vector<int32_t>& ranks : sorted_sets) {
    int32_t id = -1;
    Status status = run_alone(engine, add_request(std::move(ranks)), id);
    if (!status.ok()) {
      log_error("{}", status.message());
      shutdown_locked();
      return {Code::invalid_argument, std::string(status.message())};
    }
  }
  return {};
}

Origin Runtime::world_failure() const {
  Visit visit(*this);
  return visit.operations() == nullptr ? Origin{} : visit.operations()->why_closed().origin();
}

bool Runtime::is_own(const Origin& origin) const {
  std::shared_lock lock(mutex_);
  return rank_ >= 0 && origin.rank == rank_;
}

void Runtime::report_end(Origin origin, bool is_own) {
  std::shared_ptr<Engine> engine;
  EndReport report;
  {
    std::shared_lock lock(mutex_);
    if (forked_) return;  // the end of a child is not the end of the rank
    engine = engine_;
    report.rank = rank_;
  }
  if (is_own) {
    origin.rank = report.rank;
    origin.pid = ::getpid();
    if (engine) engine->set_departure(origin);
  }
  report.origin = std::move(origin);
  std::call_once(reported_, [&] {
    if (report_pipe_ >= 0) return write_report(report_pipe_, report);
    tell_report_store(std::move(report), engine ? engine->world().host : "");
  });
}

Status Runtime::shutdown() {
  std::shared_ptr<Engine> engine = Visit(*this).hold_to_wait();
  if (engine && engine->is_driven_here()) {
    return {Code::precondition, "shutdown cannot be called from the callback of an operation, which must return first"};
  }
  std::unique_lock life(life_mutex_, std::try_to_lock);
  if (!life.owns_lock()) {
    if (engine) engine->shutdown();  // another thread may be waiting for an operation inside init; this ends the wait
    life.lock();
  }
  shutdown_locked();
  return {};
}

void Runtime::shutdown_locked() {
  std::shared_ptr<Engine> engine;
  {
    std::unique_lock lock(mutex_);
    engine.swap(engine_);
    ending_ = engine;
    descriptors_.clear();
  }
  if (!engine) return;
  last_end_ = engine->operations()->why_closed();
  if (mpi_ != nullptr && last_end_.code() == Code::peer_lost) mpi_->spoil(last_end_);  // MPI would wait for that rank
  engine->shutdown();
  std::unique_lock lock(mutex_);
  ending_.reset();
}

Status Runtime::may_change_sets() const {
  if (dynamic_process_sets_) return {};
  return {Code::invalid_argument,
          "process sets can be added and removed only with HOROVOD_DYNAMIC_PROCESS_SETS=1, set before hvd.init()"};
}

Result<int32_t> Runtime::add_process_set(std::vector<int32_t> ranks) {
  auto engine = this->engine();
  if (!engine.ok()) return engine.status();
  if (Status status = may_change_sets(); !status.ok()) return status;
  std::sort(ranks.begin(), ranks.end());
  if (Status status = check_ranks(ranks, (*engine)->world().size); !status.ok()) return status;
  int32_t id = -1;
  Status status = run_alone(**engine, add_request(std::move(ranks)), id);
  if (status.code() == Code::precondition) return Status(Code::invalid_argument, std::string(status.message()));
  if (!status.ok()) return status;
  return id;
}

Result<bool> Runtime::remove_process_set(int32_t id) {
  auto engine = this->engine();
  if (!engine.ok()) return engine.status();
  if (Status status = may_change_sets(); !status.ok()) return status;
  if (id == kWorldSet || is_pair(id) || !(*engine)->process_sets().members(id)) return false;
  int32_t result = 0;
  Status status =
      run_alone(**engine, {.name = "process_set.remove", .kind = Kind::remove_process_set, .process_set = id}, result);
  if (!status.ok()) return status;
  return true;
}

Result<int64_t> Runtime::form_process_set(std::vector<int32_t> ranks) {
  auto engine = this->engine();
  if (!engine.ok()) return engine.status();
  if (Status status = may_change_sets(); !status.ok()) return status;
  const World& world = (*engine)->world();
  std::sort(ranks.begin(), ranks.end());
  if (Status status = check_ranks(ranks, world.size); !status.ok()) return status;
  if (!std::binary_search(ranks.begin(), ranks.end(), world.rank)) {
    return Status(Code::invalid_argument,
                  fmt::format("rank {} cannot form process set [{}], because it is not a member; its members do that",
                              world.rank, joined(ranks, ", ")));
  }
  std::string name = fmt::format("process_set.form {}", joined(ranks, ","));
  return submit_alone(**engine, {.name = std::move(name), .kind = Kind::form_process_set, .ranks = std::move(ranks)});
}

Status Runtime::leave_process_set(int32_t id) {
  auto engine = this->engine();
  if (!engine.ok()) return engine.status();
  if (Status status = may_change_sets(); !status.ok()) return status;
  if (id == kWorldSet) return {Code::invalid_argument, "no rank can leave process set 0, the world"};
  if (is_pair(id)) return {Code::invalid_argument, fmt::format("there is no process set {}", id)};
  auto handle =
      submit_alone(**engine, {.name = "process_set.leave", .kind = Kind::leave_process_set, .process_set = id});
  if (!handle.ok()) return handle.status();
  (*engine)->operations()->release(*handle);
  return {};
}

}  // namespace hvd
