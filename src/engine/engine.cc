#include "engine/engine.h"

#include <fmt/core.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cassert>

#include "base/log.h"
#include "engine/check_operation.h"
#include "engine/settings.h"
#include "model/host_tree.h"

namespace hvd {
namespace {

constexpr Duration kIdleSpin =
    std::chrono::microseconds(30);  // the engine thread looks a little longer before it sleeps
constexpr Duration kBackSoon = std::chrono::milliseconds(1);
constexpr Duration kGoodbyePatience = std::chrono::seconds(5);
constexpr int kTurnSpins = 2000;

thread_local const Engine* driving_here = nullptr;  // the engine this thread drives

int64_t ticks_of(TimePoint time) { return time.time_since_epoch().count(); }

Status shut_down_status(const ShutdownNotice& notice, const std::string& who) {
  return {Code::unknown, fmt::format("Horovod has been shut down by {}: {}", who, notice.reason)};
}

}  // namespace

// The coordinator runs inside the driving thread; the timeline may be switched by any.
class Engine::Recorder : public NegotiationObserver {
 public:
  explicit Recorder(const Executor& executor) : executor_(executor) {}
  void on_first_request(const Request& request) override {
    if (auto timeline = executor_.timeline()) {
      timeline->negotiate_start(request.name, request.kind, request.reduce_op == ReduceOp::adasum);
    }
  }
  void on_rank_ready(const Request& request, Rank rank) override {
    if (auto timeline = executor_.timeline()) timeline->negotiate_rank_ready(request.name, index_of(rank));
  }
  void on_agreed(const Request& request) override {
    if (auto timeline = executor_.timeline()) timeline->negotiate_end(request.name);
  }

 private:
  const Executor& executor_;
};

Engine::Engine(const World& world, const Config& config)
    : world_(world), config_(config), crowded_(is_crowded(world)) {}

Result<std::unique_ptr<Engine>> Engine::create(const World& world, const Config& config, WorldGroup group) {
  std::unique_ptr<Engine> engine(new Engine(world, config));
  if (Status status = engine->open(std::move(group)); !status.ok()) return status;
  return engine;
}

Status Engine::open(WorldGroup group) {
  CoordinatorSettings settings = coordinator_settings(config_, group.host);
  is_homogeneous_ = group.is_homogeneous;
  auto transport = Transport::create(std::move(group.host), transport_settings(world_, config_));
  if (!transport.ok()) return transport.status();
  transport_ = std::move(*transport);
  if (Status status = attach_mesh(group); !status.ok()) return status;
  auto node = make_node(group);
  if (!node.ok()) return node.status();
  auto executor = Executor::create(world_, config_, *transport_, *operations_,
                                   [this](const SubmissionRef& submission) { on_done(submission); });
  if (!executor.ok()) {
    transport_->abort(executor.status());
    return executor.status();
  }
  executor_ = std::move(*executor);
  if (!config_.timeline.empty() && config_.timeline != "DYNAMIC") {
    if (Status status = start_timeline(config_.timeline, config_.timeline_mark_cycles); !status.ok()) {
      log_error("{}", status.message());  // a training is not stopped by its observer
    }
  }
  recorder_ = std::make_unique<Recorder>(*executor_);
  agreement_ = std::make_unique<Agreement>(world_, config_, settings, *transport_, recorder_.get(), std::move(*node));
  if (!world_.host_of.empty()) transport_->set_chores([this](TimePoint now) { return agreement_->keep_alive(now); });
  if (world_.rank == 0) {
    if (settings.stall_shutdown > Duration{} && settings.stall_shutdown < settings.stall_warning) {
      log_warning("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is ignored: it is less than HOROVOD_STALL_CHECK_TIME_SECONDS");
    }
    if (config_.autotune) {
      auto tuner = Tuner::create(tuner_settings(config_, settings.tuning));
      if (!tuner.ok()) return tuner.status();
      tuner_ = std::move(*tuner);
    }
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  return {};
}

Status Engine::attach_mesh(WorldGroup& group) {
  if (group.hosts.empty()) return {};
  auto mesh = Mesh::create(
      [this](int32_t peer, const Status& status) {
        agreement_->report_loss(
            {Code::peer_lost, fmt::format("{} is gone: {}", transport_->rank_name(peer), status.message())});
      },
      {.lane = {}, .all_stripes = config_.tcp_streams > 0});
  if (!mesh.ok()) return mesh.status();
  for (auto& [peer, streams] : group.streams) (*mesh)->add(peer, std::move(streams));
  (*mesh)->set_dialer(std::move(group.dialer));
  return transport_->attach(std::move(*mesh));
}

Result<Agreement::Node> Engine::make_node(WorldGroup& group) {
  Agreement::Node node;
  if (group.hosts.empty() || !transport_->is_root()) return node;
  std::vector<std::vector<int32_t>> ranks;
  for (const HostRecord& host : group.hosts) {
    std::vector<int32_t>& of_host = ranks.emplace_back();
    for (const HostRecord::Rank& rank : host.ranks) of_host.push_back(rank.rank);
  }
  node.below = ranks_below(world_.host_of[static_cast<size_t>(world_.rank)], ranks);
  std::vector<HostLinks::Child> children;
  for (auto& [host, link] : group.children) {
    children.push_back({ranks[static_cast<size_t>(host)].front(), std::move(link)});
  }
  auto links = HostLinks::create(*transport_, std::move(group.parent), std::move(children));
  if (!links.ok()) return links.status();
  node.links = std::move(*links);
  return node;
}

Engine::~Engine() { shutdown(); }

// ---- submitting ----

Result<SubmissionRef> Engine::submit(std::vector<Operation> operations, std::function<void(const Submission&)> on_done,
                                     bool wait_follows) {
  auto submission = std::make_shared<Submission>();
  submission->operations = std::move(operations);
  submission->on_done = std::move(on_done);
  for (Operation& operation : submission->operations) {
    if (submission->operations.size() > 1) {
      operation.request.group = submission->operations.front().request.name;
      operation.request.group_size = static_cast<uint32_t>(submission->operations.size());
    }
    if (Status status = check_operation(operation, world_, *executor_); !status.ok()) return status;
    bool changes_sets = operation.request.kind > Kind::join;
    if (joined_.load() && !changes_sets && operation.request.process_set == kWorldSet) {
      return Status(Code::invalid_argument,
                    fmt::format("{}: this rank has joined; wait for join to return first", operation.request.name));
    }
  }
  if (Status status = operations_->add(submission); !status.ok()) return status;
  if (submission->operations.front().request.kind == Kind::join) joined_.store(true);
  {
    std::lock_guard lock(inbox_mutex_);
    inbox_.push_back(submission);
    inbox_filled_.store(true, std::memory_order_release);
  }
  // A driving thread looks at the inbox by itself, and once more after it has stopped driving.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!wait_follows && !driving_.load(std::memory_order_relaxed) && !wake_pending_.exchange(true)) transport_->wake();
  return submission;
}

// ---- driving ----

template <class Done>
void Engine::drive(Done&& done, TimePoint until) {
  transport_->enter();
  driving_here = this;
  while (!done()) {
    if (progress()) continue;
    TimePoint next = std::min(until, next_deadline());
    auto something = [&] {
      return done() || inbox_filled_.load(std::memory_order_relaxed) || agreement_->has_incoming() ||
             (shutdown_wanted_.load(std::memory_order_relaxed) && !shutdown_announced_);
    };
    if (Status status = transport_->wait_until(something, next); !status.ok()) end(status);
    agreement_->watch_leader();
    if (until != kNever && Clock::now() >= until) break;
  }
  driving_here = nullptr;
  // A user thread that waited a moment ago is likely to be back before a bell could wake the engine thread.
  TimePoint now = Clock::now();
  if (driver_waits_) waited_at_ = now;
  bool left_over = transport_->leave(now < waited_at_ + kBackSoon) || agreement_->has_unread();
  // What arrived after the last look, and a deadline the engine thread does not know, are now its business.
  int64_t deadline = ticks_of(next_deadline());
  bool is_new_deadline =
      deadline_.exchange(deadline) != deadline && deadline != ticks_of(kNever) && engine_sleeps_.load();
  if (left_over || is_new_deadline) transport_->wake();
}

// With turn_mutex_ held. A submitter that saw us driving did not wake anybody, so the inbox is looked at once more.
void Engine::stop_driving() {
  driving_.store(false);
  wake_pending_.store(false);  // a bell may have been answered by us instead of the engine thread
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (inbox_filled_.load(std::memory_order_relaxed)) transport_->wake();
}

TimePoint Engine::sleep_until() {
  engine_sleeps_.store(true);  // before the look at deadline_: a driver that sets it later sees this and wakes us
  return TimePoint(Duration(deadline_.load()));
}

bool Engine::wait(const SubmissionRef& submission, TimePoint until) {
  auto done = [&] { return submission->done.load(std::memory_order_acquire); };
  if (done()) return true;
  std::unique_lock lock(turn_mutex_);
  waiting_.fetch_add(1);
  while (!done()) {
    if (!driving_.load(std::memory_order_relaxed)) {
      driving_.store(true);
      lock.unlock();
      driver_waits_ = true;
      drive(done, until);
      driver_waits_ = false;
      lock.lock();
      stop_driving();
      if (waiting_.load() > 1 || engine_parked_) turn_.notify_all();
    } else {
      // The engine thread leaves soon when somebody waits: look a moment before sleeping.
      lock.unlock();
      for (int i = 0; i < kTurnSpins && driving_.load(std::memory_order_relaxed) && !done(); i++) {
        if (crowded_) {
          ::sched_yield();
          i += kTurnSpins / 16;
        } else {
          Transport::relax();
        }
      }
      lock.lock();
      if (driving_.load(std::memory_order_relaxed) && !done()) {
        if (until == kNever)
          turn_.wait(lock);
        else
          turn_.wait_until(lock, until);
      }
    }
    if (until != kNever && !done() && Clock::now() >= until) break;
  }
  waiting_.fetch_sub(1);
  return done();
}

void Engine::run(const std::stop_token& stop) {
  ::pthread_setname_np(::pthread_self(), "hvd-engine");
  if (!config_.thread_affinity.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(config_.thread_affinity[static_cast<size_t>(world_.local_rank)]), &set);
    ::sched_setaffinity(0, sizeof set, &set);
  }
  while (!stop.stop_requested()) {
    transport_->sleep(sleep_until());
    engine_sleeps_.store(false);
    wake_pending_.store(false);
    std::unique_lock lock(turn_mutex_);
    if (driving_.load()) {
      if (transport_->answer_bell_for_driver()) continue;
      engine_parked_ = true;  // two sleepers would only take events from each other
      turn_.wait(lock, [&] { return stop.stop_requested() || !driving_.load(); });
      engine_parked_ = false;
      continue;
    }
    driving_.store(true);
    lock.unlock();
    transport_->answer_bell();
    TimePoint quiet_at = Clock::now() + kIdleSpin;
    bool looked = false;
    drive(
        [&] {
          if (!std::exchange(looked, true)) return false;
          return waiting_.load(std::memory_order_relaxed) > 0 || stop.stop_requested() ||
                 (!inbox_filled_.load(std::memory_order_relaxed) && !agreement_->has_incoming() &&
                  Clock::now() >= quiet_at);
        },
        quiet_at);
    lock.lock();
    stop_driving();
    if (waiting_.load() > 0) turn_.notify_all();
  }
}

bool Engine::progress() {
  if (!ended_ && transport_->failed()) end(transport_->failure());
  if (!world_.host_of.empty()) agreement_->keep_alive(Clock::now());
  if (inbox_filled_.load(std::memory_order_acquire)) {
    std::lock_guard lock(inbox_mutex_);
    taken_.swap(inbox_);
    inbox_filled_.store(false, std::memory_order_release);
  }
  if (ended_) {
    taken_.clear();
    return false;
  }
  for (const SubmissionRef& submission : taken_) {
    for (const Operation& operation : submission->operations) agreement_->announce(operation.request);
  }
  taken_.clear();
  if (shutdown_wanted_.load(std::memory_order_relaxed) && !std::exchange(shutdown_announced_, true)) {
    agreement_->announce_shutdown(fmt::format("{} called shutdown or exited", transport_->rank_name(world_.rank)));
  }
  agreement_->progress(decisions_);
  if (decisions_.empty()) return false;
  for (Decision& decision : decisions_) {
    if (!ended_) apply(decision);
  }
  decisions_.clear();
  return true;
}

void Engine::apply(Decision& decision) {
  if (auto* plan = std::get_if<Plan>(&decision)) {
    execute(*plan);
  } else if (auto* tuning = std::get_if<Tuning>(&decision)) {
    executor_->apply(*tuning);
  } else if (auto* report = std::get_if<StallReport>(&decision)) {
    log_warning("{}", report->text);
  } else if (auto* notice = std::get_if<ShutdownNotice>(&decision)) {
    transport_->expect_departures();
    std::string who = notice->rank < 0 ? "the stall inspector" : transport_->rank_name(notice->rank);
    if (notice->rank < 0) log_error("{}", notice->reason);
    end(shut_down_status(*notice, who));
  }
}

void Engine::execute(const Plan& plan) {
  if (auto timeline = executor_->timeline()) timeline->mark_cycle();
  if (Status status = executor_->run(plan); !status.ok()) end(status);
  if (tuner_) note_step(plan);
}

// The tuner counts steps: one is over when a name comes round again.
void Engine::note_step(const Plan& plan) {
  size_t bytes = 0;
  bool new_step = false;
  for (const AgreedRequest& request : plan.tensors) {
    bytes += bytes_of(*request);
    auto place = std::lower_bound(step_names_.begin(), step_names_.end(), request->name);
    if (place != step_names_.end() && *place == request->name)
      new_step = true;
    else
      step_names_.insert(place, request->name);
  }
  if (new_step) {
    step_names_.clear();
    for (const AgreedRequest& request : plan.tensors) step_names_.push_back(request->name);
    std::sort(step_names_.begin(), step_names_.end());
  }
  if (auto tuning = tuner_->record(bytes, new_step, Clock::now())) agreement_->coordinator()->tune(*tuning);
  if (tuner_->done()) tuner_.reset();
}

TimePoint Engine::next_deadline() const { return ended_ ? kNever : agreement_->next_deadline(); }

void Engine::end(const Status& status) {
  if (ended_) return;
  ended_ = true;
  if (status.code() == Code::peer_lost) log_warning("{}", status.message());
  operations_->close(status);  // before finish_all: what was added before it is ended there
  for (const SubmissionRef& submission : operations_->finish_all(status)) on_done(submission);
  on_done(ending_);
}

void Engine::on_done(const SubmissionRef& submission) {
  if (!submission->operations.empty() && submission->operations.front().request.kind == Kind::join)
    joined_.store(false);
  submission->done.store(true, std::memory_order_seq_cst);
  if (submission->on_done) submission->on_done(*submission);
  // Wake the waiters that sleep; the driver sees it by itself, unless a backend's thread finished the submission.
  bool by_driver = driving_here == this;
  if (waiting_.load(std::memory_order_seq_cst) > (by_driver && driver_waits_ ? 1 : 0)) {
    std::lock_guard lock(turn_mutex_);
    turn_.notify_all();
  }
  if (!by_driver) transport_->wake();
}

// ---- ending ----

void Engine::shutdown() {
  {
    std::lock_guard lock(turn_mutex_);
    if (std::exchange(shut_down_, true) || !thread_.joinable()) return;
  }
  shutdown_wanted_.store(true);
  transport_->wake();
  // Until everybody has been told, or the world has failed, or the root does not answer.
  wait(ending_, Clock::now() + kGoodbyePatience);
  transport_->say_goodbye();
  thread_.request_stop();
  transport_->wake();
  {
    std::lock_guard lock(turn_mutex_);
    turn_.notify_all();
  }
  thread_.join();
  agreement_->leave(Clock::now() + kGoodbyePatience);
  end({Code::unknown, "Horovod has been shut down"});
  executor_->drain();
  executor_->set_timeline(nullptr);
}

std::vector<int> Engine::descriptors() const {
  std::vector<int> fds = transport_->descriptors();
  agreement_->list_descriptors(fds);
  return fds;
}

// ---- timeline ----

std::string Engine::timeline_path(const std::string& path) const {
  if (world_.rank == 0) return path;
  size_t dot = path.rfind('.'), slash = path.rfind('/');
  if (dot == std::string::npos || (slash != std::string::npos && dot < slash)) dot = path.size();
  return fmt::format("{}.rank{}{}", path.substr(0, dot), world_.rank, path.substr(dot));
}

Status Engine::start_timeline(const std::string& path, bool mark_cycles) {
  if (config_.timeline.empty()) {
    return {Code::invalid_argument,
            "the timeline was not enabled: set HOROVOD_TIMELINE to a path or to DYNAMIC before hvd.init()"};
  }
  if (world_.rank != 0 && !config_.timeline_all_ranks) return {};
  std::string file = timeline_path(path);
  auto current = executor_->timeline();
  if (current && current->path() == file) return {};
  auto timeline = Timeline::create(file, mark_cycles, world_.rank);
  if (!timeline.ok()) {
    log_error("{}", timeline.status().message());
    return {};
  }
  executor_->set_timeline(std::move(*timeline));
  return {};
}

Status Engine::stop_timeline() {
  executor_->set_timeline(nullptr);
  return {};
}

}  // namespace hvd
