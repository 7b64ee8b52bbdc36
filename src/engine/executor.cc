#include "engine/executor.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <cassert>

#include "backends/loader.h"
#include "base/log.h"
#include "collectives/host_collectives.h"
#include "engine/outputs.h"

namespace hvd {
namespace {

// Hints that choose between ways to the same result. Unset leaves the choice to us; a torus is a hierarchy as well.
WorldSettings settings_from(const Config& config) {
  WorldSettings settings;
  settings.flat_allreduce = config.hierarchical_allreduce == false && config.torus_allreduce != true;
  settings.flat_allgather = config.hierarchical_allgather == false;
  return settings;
}

// Larger ones are faster by a plan of their own: their copies into messages cost more than the hops that are saved.
constexpr size_t kCarryOnHost = 1 << 10;
constexpr size_t kCarryBetweenHosts = 64 << 10;
constexpr Duration kDrainPatience = std::chrono::seconds(5);

// The bytes up to which it carries; 0: this world does not. Time-outs end what is promised (carried.h), who lingers
// wants fusion, the tuner looks at plans, and other backends at all of them.
size_t carry_limit(const World& world, const Config& config) {
  bool never = world.size != kRanksThatCarry || config.collective_timeout > 0 || config.cycle_time_ms.value_or(0) > 0 ||
               config.autotune || !config.backends.empty();
  if (never) return 0;
  return world.host_of.empty() ? kCarryOnHost : kCarryBetweenHosts;
}

}  // namespace

Executor::Executor(const World& world, Transport& transport, OperationTable& operations,
                   std::function<void(Task&)> on_done)
    : world_(world),
      transport_(transport),
      operations_(operations),
      on_done_(std::move(on_done)),
      one_shot_limit_(static_cast<size_t>(Tuning().one_shot_limit)),
      process_sets_(world.size) {}

Result<std::unique_ptr<Executor>> Executor::create(const World& world, const Config& config, Transport& transport,
                                                   OperationTable& operations, std::function<void(Task&)> on_done,
                                                   const MakePolled& make_polled) {
  std::unique_ptr<Executor> executor(new Executor(world, transport, operations, std::move(on_done)));
  Executor* self = executor.get();
  if (config.one_shot_limit) self->one_shot_limit_ = static_cast<size_t>(*config.one_shot_limit);
  self->world_settings_ = settings_from(config);
  if (Status status = self->open_process_set(kWorldSet, *self->process_sets_.ranks(kWorldSet)); !status.ok())
    return status;
  BackendContext context{.world = world,
                         .members = [self](int32_t set) { return self->members(set).value_or(std::vector<int32_t>()); },
                         .exchange = [self](int32_t set, ByteView mine,
                                            std::byte* all) { return self->collectives_of(set).allgather(mine, all); }};
  auto loaded = load_backends(config.backends, context);
  if (!loaded.ok()) return loaded.status();
  self->backends_ = std::move(*loaded);
  if (make_polled) {
    auto polled = make_polled(context, transport);
    if (!polled.ok()) return polled.status();
    self->polled_ = polled->get();
    self->backends_.push_back(std::move(*polled));
  }
  auto cpu = std::make_unique<CpuBackend>([self](int32_t set) -> Collectives& { return self->collectives_of(set); });
  self->cpu_ = cpu.get();
  self->backends_.push_back(std::move(cpu));
  self->carry_limit_ = make_polled ? 0 : carry_limit(world, config);
  return executor;
}

// Every rank of a host opens the same channels, also of sets it is not in, but none of a set without members there.
Status Executor::open_process_set(int32_t id, const std::vector<int32_t>& ranks) {
  std::vector<int32_t> locals = local_members(ranks);
  if (locals.empty()) return {};
  auto channel = transport_.open_channel(id, locals);
  if (!channel.ok()) return channel.status();
  if (*channel == nullptr) return {};
  if (locals.size() == ranks.size()) {
    collectives_[id] = std::make_unique<HostCollectives>(**channel, one_shot_limit_);
    return {};
  }
  WorldSettings settings = world_settings_;
  settings.one_shot_limit = one_shot_limit_;
  collectives_[id] =
      std::make_unique<WorldCollectives>(transport_, **channel, place(ranks, world_.host_of, world_.rank), settings);
  return {};
}

// The members on this host, as the transport numbers them, in the order of their positions in the set.
std::vector<int32_t> Executor::local_members(const std::vector<int32_t>& ranks) const {
  if (world_.host_of.empty()) return ranks;
  std::vector<int32_t> locals;
  for (int32_t rank : ranks) {
    for (int32_t local = 0; local < transport_.size(); local++) {
      if (transport_.world_rank(local) == rank) locals.push_back(local);
    }
  }
  return locals;
}

void Executor::apply(const Tuning& tuning) {
  one_shot_limit_ = static_cast<size_t>(tuning.one_shot_limit);
  for (auto& [id, collectives] : collectives_) collectives->set_one_shot_limit(one_shot_limit_);
}

// ---- look-ups ----

std::optional<std::vector<int32_t>> Executor::members(int32_t process_set) const {
  std::lock_guard lock(mutex_);
  const std::vector<int32_t>* ranks = process_sets_.ranks(process_set);
  if (ranks == nullptr) return std::nullopt;
  return *ranks;
}

Executor::Membership Executor::membership(int32_t process_set) const {
  if (process_set == kWorldSet) return {.size = world_.size, .position = world_.rank};
  std::lock_guard lock(mutex_);
  const std::vector<int32_t>* ranks = process_sets_.ranks(process_set);
  if (ranks == nullptr) return {};
  return {.size = static_cast<int32_t>(ranks->size()),
          .position = process_sets_.position(process_set, Rank{world_.rank}).value_or(-1),
          .serial = process_sets_.serial(process_set)};
}

bool Executor::contains(int32_t process_set, int32_t rank) const {
  std::lock_guard lock(mutex_);
  return process_sets_.contains(process_set, Rank{rank});
}

std::vector<int32_t> Executor::process_set_ids() const {
  std::lock_guard lock(mutex_);
  return process_sets_.ids();
}

void Executor::set_timeline(std::shared_ptr<Timeline> timeline) {
  {
    std::lock_guard lock(mutex_);
    has_timeline_.store(timeline != nullptr, std::memory_order_relaxed);
    timeline_.swap(timeline);
  }
  if (timeline) timeline->close();  // whoever still holds it: its file is whole when this returns
}

std::shared_ptr<Timeline> Executor::timeline() const {
  if (!has_timeline_.load(std::memory_order_relaxed)) return nullptr;
  std::lock_guard lock(mutex_);
  return timeline_;
}

// ---- executing ----

Executor::Execution& Executor::take_execution() {
  for (const std::unique_ptr<Execution>& execution : executions_) {
    if (execution->is_under_way.load(std::memory_order_acquire) == 0) return *execution;
  }
  return *executions_.emplace_back(std::make_unique<Execution>());
}

void Executor::retire(Execution& execution) {
  execution.plan.tensors.clear();
  execution.places.clear();
  execution.operations.clear();
  execution.stand_ins.clear();
  execution.done.clear();
  execution.timeline.reset();
  execution.is_under_way.store(0, std::memory_order_release);
  execution.is_under_way.notify_all();
}

void Executor::give_up(const Status& status) {
  if (is_busy()) polled_->give_up(status);
}

void Executor::drain() {
  TimePoint end = Clock::now() + kDrainPatience;
  while (is_busy() && !transport_.failed() && Clock::now() < end) {
    if (!polled_->poll()) ::sched_yield();
  }
  give_up({Code::unknown, "Horovod has been shut down"});
  for (const std::unique_ptr<Execution>& execution : executions_) execution->is_under_way.wait(1);
}

Status Executor::run(Plan&& plan) {
  Execution& execution = take_execution();
  execution.is_under_way.store(1, std::memory_order_relaxed);
  execution.plan = std::move(plan);
  execution.timeline = timeline();
  if (!collect(execution)) {
    retire(execution);
    return {};
  }
  Status world;
  if (execution.plan.error != Code::ok) {
    finish(execution,
           {execution.plan.error, execution.plan.error_text, transport_.placed(execution.plan.error_origin)});
  } else {
    switch (execution.plan.first().kind) {
      case Kind::add_process_set:
      case Kind::remove_process_set: world = change_process_sets(execution); [[fallthrough]];
      case Kind::barrier:
      case Kind::join:
        for (Operation* operation : execution.operations) operation->result = execution.plan.result;
        finish(execution, world);
        break;
      default:
        world = prepare(execution);
        if (world.ok()) {
          start(execution);
          return transport_.failure();
        }
        finish(execution, world);
    }
  }
  retire(execution);
  return world;
}

// The plan's operations on this rank, in the plan's order.
bool Executor::collect(Execution& execution) {
  const Plan& plan = execution.plan;
  bool changes_sets = plan.first().kind == Kind::add_process_set || plan.first().kind == Kind::remove_process_set;
  operations_.find(plan, execution.places);
  for (size_t i = 0; i < plan.tensors.size(); i++) {
    const Request& request = *plan.tensors[i];
    if (execution.places[i] != nullptr) {
      execution.operations.push_back(execution.places[i]->operation);
    } else if (plan.error == Code::ok && request.kind == Kind::allreduce && is_member(request.process_set)) {
      stand_in(execution, request);  // this rank has joined; else the set, or the error, concerns others
    }
  }
  std::erase(execution.places, nullptr);
  return changes_sets || !execution.operations.empty();
}

void Executor::stand_in(Execution& execution, const Request& request) {
  TaskRef task = make_task(1);
  Operation& operation = task->operations.front();
  operation.request = request;
  size_t bytes = bytes_of(request);
  operation.owned_output.reset(static_cast<std::byte*>(std::calloc(std::max<size_t>(bytes, 1), 1)));
  operation.input = {.data = operation.owned_output.get(), .dtype = request.dtype, .shape = request.shape};
  operation.output = operation.input;
  execution.operations.push_back(&operation);
  execution.stand_ins.push_back(std::move(task));
}

// All ranks have come here, but some may still be inside an earlier plan of a set whose memory is about to be used
// again; the barrier makes sure that they are not.
Status Executor::change_process_sets(Execution& execution) {
  const Request& request = execution.plan.first();
  collectives_of(kWorldSet).describe(request.name.c_str());
  if (Status status = collectives_of(kWorldSet).barrier(); !status.ok()) return status;
  if (request.kind == Kind::remove_process_set) {
    collectives_.erase(request.process_set);
    transport_.close_channel(request.process_set);
    std::lock_guard lock(mutex_);
    process_sets_.remove(request.process_set);
    return {};
  }
  int32_t id = -1;
  {
    std::lock_guard lock(mutex_);
    id = process_sets_.add(request.ranks);
  }
  assert(id == execution.plan.result);
  Status status = open_process_set(id, request.ranks);
  if (!status.ok()) transport_.abort(status);
  return status;
}

// Everything that must be known before a backend runs.
Status Executor::prepare(Execution& execution) {
  const Request& request = execution.plan.first();
  collectives_of(request.process_set).describe(request.name.c_str());
  if (rows_may_differ(request.kind)) {
    Collectives& collectives = collectives_of(request.process_set);
    if (Status status = exchange_rows(collectives, request.kind, execution.operations); !status.ok()) return status;
  }
  for (Operation* operation : execution.operations) {
    if (request.kind == Kind::broadcast) {
      std::lock_guard lock(mutex_);
      operation->root_position = *process_sets_.position(request.process_set, Rank{request.root_rank});
    }
    if (Status status = allocate_output(*operation); !status.ok()) transport_.abort(status);
  }
  return transport_.failure();
}

// ---- carried ----

bool Executor::can_carry(const Operation& operation) const {
  return carries() && can_be_carried(operation.request) && operation.input.bytes() <= carry_limit_ && !has_timeline();
}

void Executor::on_carried(const Request& request, ByteView theirs) {
  Task::Place* place = operations_.find(request);
  if (place == nullptr) return;  // everything has been ended meanwhile
  Status status = allocate_output(*place->operation);
  if (status.ok()) {
    status = cpu_->combine(*place->operation, theirs, world_.rank);
  } else {
    transport_.abort(status);
  }
  operations_.finish({&place, 1}, status, carried_);
  for (const TaskRef& task : carried_) on_done_(*task);
  carried_.clear();
}

Backend* Executor::backend_for(const Plan& plan) {
  for (const std::unique_ptr<Backend>& backend : backends_) {
    if (backend->accepts(plan)) return backend.get();
  }
  return nullptr;
}

void Executor::start(Execution& execution) {
  auto done = [this, &execution](const Status& status) {
    finish(execution, status);
    retire(execution);
  };
  Backend* backend = backend_for(execution.plan);
  if (backend == nullptr) {
    const Request& request = execution.plan.first();
    done({Code::unknown, fmt::format("no backend can execute {} of {} on device {}", name_of(request.kind),
                                     request.name, request.device)});
    return;
  }
  if (execution.timeline) {
    for (Operation* operation : execution.operations) {
      const Request& request = operation->request;
      execution.timeline->start(request.name, request.kind, request.reduce_op == ReduceOp::adasum);
      execution.timeline->activity_start(request.name, backend->activity(request.kind));
    }
  }
  for (Operation* operation : execution.operations) operation->running = true;
  backend->run(execution.plan, execution.operations, done);
}

void Executor::finish(Execution& execution, const Status& status) {
  if (execution.timeline && execution.plan.error == Code::ok) {
    for (const Task::Place* place : execution.places) {
      const Operation& operation = *place->operation;
      if (operation.request.kind > Kind::reducescatter) continue;
      execution.timeline->activity_end(operation.request.name);
      execution.timeline->end(operation.request.name, operation.request.dtype, operation.output.shape);
    }
  }
  operations_.finish(execution.places, status, execution.done);
  for (const TaskRef& task : execution.done) on_done_(*task);
}

}  // namespace hvd
