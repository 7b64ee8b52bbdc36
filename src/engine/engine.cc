#include "engine/engine.h"

#include <fmt/core.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cassert>

#include "base/log.h"
#include "base/relax.h"
#include "engine/check_operation.h"

namespace hvd {
namespace {

constexpr Duration kIdleSpin =
    std::chrono::microseconds(30);  // the engine thread polls a little longer before it sleeps
constexpr Duration kBackSoon = std::chrono::milliseconds(1);
// Rare enough to cost nothing, and soon enough for peers if a rank forgets to wait.
constexpr Duration kLongestDeferral = std::chrono::milliseconds(100);
constexpr Duration kGoodbyePatience = std::chrono::seconds(5);
constexpr Duration kPollRound = std::chrono::milliseconds(1);  // interval to check for events that polling misses
constexpr int kPollsPerLook = 16;
constexpr int kPollsBeforeNaps = 1000;
constexpr Duration kPollNap = std::chrono::microseconds(50);
constexpr int kTurnSpins = 2000;

constinit thread_local const Engine* driving_here = nullptr;  // the engine that this thread drives

int64_t ticks_of(TimePoint time) { return time.time_since_epoch().count(); }

Status shut_down_status(const ShutdownNotice& notice, const std::string& who, Origin origin) {
  return {Code::unknown, fmt::format("Horovod has been shut down by {}: {}", who, notice.reason), std::move(origin)};
}

Status has_joined(const Request& request) {
  return {Code::invalid_argument, fmt::format("{}: this rank has joined; wait for join to return first", request.name)};
}

}  // namespace

Engine::~Engine() { shutdown(); }

void Engine::attach_device(const BackendList::MakeDevice& make) {
  backends_->attach_device([&](BackendContext context) {
    context.is_recording = [recorder = &recorder_] { return recorder->is_watching(); };
    return make(std::move(context));
  });
}

// ---- submitting ----

Result<TaskRef> Engine::submit(std::vector<Operation> operations, std::function<void(const Task&)> on_done,
                               bool wait_follows) {
  TaskRef task = make_task(0);
  task->operations = std::move(operations);
  task->on_done = std::move(on_done);
  if (Status status = submit(task, wait_follows); !status.ok()) return status;
  return task;
}

Status Engine::submit(const TaskRef& task, bool wait_follows) {
  for (Operation& operation : task->operations) {
    Request& request = operation.request;
    if (task->operations.size() > 1) {
      request.group = task->operations.front().request.name;
      request.group_size = static_cast<uint32_t>(task->operations.size());
    }
    if (Status status = check_operation(operation, world_, *process_sets_); !status.ok()) return status;
    if (joined_.load(std::memory_order_relaxed) && !manages_sets(request.kind) && request.process_set == kWorldSet) {
      return has_joined(request);
    }
    if (request.device != kHost && device() != nullptr) {
      if (Status status = device()->on_submit(operation); !status.ok()) return status;
    }
  }
  bool is_join = task->operations.front().request.kind == Kind::join;
  if (is_join && joined_.exchange(true)) return has_joined(task->operations.front().request);
  if (recorder_.is_watching()) {
    for (const Operation& operation : task->operations) recorder_.on_submit(operation.request);
  }
  // Added to the count first, because it may finish at once.
  if (Status status = operations_->add(task); !status.ok()) {
    if (is_join) joined_.store(false);
    return status;
  }
  if (!wait_follows) wake_for_new();
  return {};
}

// A driver that is awake finds new tasks by itself, and checks again after it has stopped driving.
void Engine::wake_for_new(bool not_at_once) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (turn_.is_taken()) {
    transport_->waiter().wake_driver();
  } else if (not_at_once && can_defer_) {
    transport_->waiter().wake_later(kLongestDeferral);
  } else if (!wake_pending_.exchange(true)) {
    transport_->waiter().wake();
  }
}

// ---- driving ----

template <class Done>
void Engine::drive(Done&& done, TimePoint until) {
  transport_->waiter().enter();
  driving_here = this;
  while (!done()) {
    if (progress()) continue;
    bool is_busy = backends_->is_busy();
    TimePoint next = std::min(until, next_deadline(driver_waits_));
    if (is_busy) next = std::min(next, Clock::now() + kPollRound);
    bool happened = false;
    auto something = [&] {
      happened = poll_for_a_while() || done() || operations_->has_new() || agreement_->has_incoming() ||
                 (shutdown_wanted_.load(std::memory_order_relaxed) && !shutdown_announced_) ||
                 (leaves_alone_.load(std::memory_order_relaxed) && !ended_);
      return happened;
    };
    if (Status status = transport_->waiter().wait_until(something, next); !status.ok()) end(status);
    if (!happened) agreement_->watch_leader(driver_waits_ && !ended_);
    // polling skips the sleep path, which consumes the event
    if (!happened && is_busy) transport_->waiter().answer_bell();
    if (until != kNever && Clock::now() >= until) break;
  }
  driving_here = nullptr;
  bell_answered_.store(false, std::memory_order_relaxed);
  // A user thread that waited a moment ago usually returns before a bell could wake the engine thread.
  TimePoint now = Clock::now();
  if (driver_waits_) waited_at_ = now;
  bool left_over =
      transport_->waiter().leave(now < waited_at_ + kBackSoon) || agreement_->has_unread() || backends_->is_busy();
  // The engine thread now handles messages that arrived after the last check, and a deadline it does not know yet.
  int64_t deadline = ticks_of(next_deadline());
  if (deadline_.load(std::memory_order_relaxed) != deadline) {
    deadline_.store(deadline);
    left_over = left_over || (deadline != ticks_of(kNever) && engine_sleeps_.load());
  }
  if (left_over) transport_->waiter().wake();
}

// A submitter that saw us driving woke no thread, so check again for new tasks. The engine thread may have answered a
// bell for us after our last check for messages.
void Engine::stop_driving(bool waits) {
  wake_pending_.store(false, std::memory_order_relaxed);  // we may have answered the bell instead of the engine thread
  turn_.give_back(waits);                                 // ends with a fence
  if (operations_->has_new() || bell_answered_.load(std::memory_order_relaxed)) transport_->waiter().wake();
}

TimePoint Engine::sleep_until() {
  engine_sleeps_.store(true);  // before reading deadline_: a driver that sets it later sees this and wakes us
  return TimePoint(Duration(deadline_.load()));
}

bool Engine::wait(const TaskRef& task, TimePoint until) {
  return wait_for([&] { return task->done.load(std::memory_order_acquire); }, until);
}

bool Engine::wait_launched(const TaskRef& task, TimePoint until) {
  auto all = static_cast<int32_t>(task->operations.size());
  return wait_for(
      [&] {
        return task->done.load(std::memory_order_acquire) || task->launched.load(std::memory_order_acquire) == all;
      },
      until);
}

template <class Done>
bool Engine::wait_for(Done&& done, TimePoint until) {
  if (done()) return true;
  TimePoint begin = recorder_.is_watching() ? Clock::now() : kNever;
  turn_.begin_waiting();
  while (!done()) {
    if (turn_.try_take()) {
      driver_waits_ = true;
      drive(done, until);
      driver_waits_ = false;
      stop_driving(true);
    } else {
      if (operations_->has_new()) transport_->waiter().wake_driver();  // the operation may wait for one of them
      // The engine thread leaves soon when a thread waits: spin for a moment before sleeping.
      for (int i = 0; i < kTurnSpins && turn_.is_taken() && !done(); i++) {
        if (world_.crowded) {
          ::sched_yield();
          i += kTurnSpins / 16;
        } else {
          relax();
        }
      }
      turn_.sleep(done, until);
    }
    if (until != kNever && !done() && Clock::now() >= until) break;
  }
  turn_.end_waiting();
  if (begin != kNever) recorder_.on_waited(begin);
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
    transport_->waiter().sleep(sleep_until());
    engine_sleeps_.store(false);
    wake_pending_.store(false);
    if (!turn_.try_take()) {
      answer_for_driver(stop);
      continue;
    }
    transport_->waiter().answer_bell();
    TimePoint quiet_at = Clock::now() + kIdleSpin;
    bool looked = false;
    drive(
        [&] {
          if (!std::exchange(looked, true)) return false;
          return turn_.waiting() > 0 || stop.stop_requested() ||
                 (!operations_->has_new() && !agreement_->has_incoming() && !backends_->is_busy() &&
                  Clock::now() >= quiet_at);
        },
        backends_->is_busy() ? kNever : quiet_at);
    stop_driving(false);
  }
}

// Another thread drives, and may have made its last check. Then one of the two sees the other, and the bell is rung
// again.
void Engine::answer_for_driver(const std::stop_token& stop) {
  bell_answered_.store(true);
  if (!transport_->waiter().answer_bell_for_driver()) {
    turn_.park([&] { return stop.stop_requested(); });  // two sleepers would only take events from each other
  } else if (!turn_.is_taken()) {
    transport_->waiter().wake();
  }
}

// MPI moves bytes only while it is polled: yielding after each poll would delay other ranks. But while no thread here
// waits, and the user's own work needs the core, it is polled only occasionally.
bool Engine::poll_for_a_while() {
  for (int left = world_.crowded ? 1 : kPollsPerLook; left > 0 && backends_->is_busy(); left--) {
    polls_in_vain_++;
    if (!backends_->poll()) continue;
    polls_in_vain_ = 0;
    return true;
  }
  if (polls_in_vain_ > kPollsBeforeNaps && backends_->is_busy() && !driver_waits_ && !has_spare_core_) {
    std::this_thread::sleep_for(kPollNap);  // nothing would wake it
  }
  return false;
}

bool Engine::progress() {
  if (transport_->failed() && (!ended_ || backends_->is_busy())) {
    backends_->give_up(transport_->failure());
    end(transport_->failure());
  }
  if (leaves_alone_.load(std::memory_order_relaxed)) end({Code::unknown, "Horovod has been shut down"});
  if (gives_up_.load(std::memory_order_relaxed)) backends_->give_up({Code::unknown, "Horovod has been shut down"});
  backends_->poll();
  // Checking the links takes as long as sending to them; new tasks are sent first.
  if (links_ != nullptr && !operations_->has_new()) links_->progress(Clock::now());
  size_t in_flight = operations_->take_new(taken_);
  if (ended_) return false;  // the taken tasks have failed
  for (Task* task : taken_) {
    if (Status status = check_again(*task); status.ok()) {
      announce(*task, in_flight == 1);
    } else {
      refuse(*task, status);
    }
  }
  if (shutdown_wanted_.load(std::memory_order_relaxed) && !std::exchange(shutdown_announced_, true)) {
    Origin departure = why_leaving();
    agreement_->announce_shutdown("it " + describe(departure), departure);
  }
  agreement_->progress(decisions_);
  if (decisions_.empty()) return false;
  for (Decision& decision : decisions_) {
    if (!ended_) apply(decision);
  }
  decisions_.clear();
  return true;
}

// submit() checks in its caller's thread. Plans that the driver has applied since then count: other ranks treat an
// announcement on a set that this rank has seen removed, or after its join, as a protocol error.
Status Engine::check_again(const Task& task) const {
  for (const Operation& operation : task.operations) {
    const Request& request = operation.request;
    if (manages_sets(request.kind)) continue;
    if (request.process_set == kWorldSet && join_announced_) return has_joined(request);
    if (request.process_set != kWorldSet &&
        process_sets_->membership(request.process_set).serial != operation.set_serial) {
      return process_set_removed(request.process_set);
    }
  }
  return {};
}

void Engine::refuse(Task& task, const Status& status) {
  std::vector<Task::Place*> places;
  for (Task::Place& place : task.places) places.push_back(&place);
  std::vector<TaskRef> done;
  operations_->finish(places, status, done);
  for (const TaskRef& each : done) on_done(*each);
}

// Carry only a lone operation; concurrent ones are fused.
void Engine::announce(const Task& task, bool is_alone) {
  for (const Operation& operation : task.operations) {
    join_announced_ |= operation.request.kind == Kind::join;
    if (operation.request.kind == Kind::join && device() != nullptr) device()->set_join_device(operation.input.device);
    bool is_carried = is_alone && carried_ != nullptr && carried_->may_carry(operation);
    ByteView data = is_carried ? ByteView(operation.input.data, operation.input.bytes()) : ByteView();
    agreement_->announce(operation.request, data);
  }
}

void Engine::apply(Decision& decision) {
  if (auto* plan = std::get_if<Plan>(&decision)) {
    execute(std::move(*plan));
  } else if (auto* tuning = std::get_if<Tuning>(&decision)) {
    process_sets_->apply(*tuning);
  } else if (auto* report = std::get_if<StallReport>(&decision)) {
    log_warning("{}", report->text);
  } else if (auto* notice = std::get_if<ShutdownNotice>(&decision)) {
    transport_->peers().expect_departures();
    std::string who = notice->rank < 0 ? "the stall inspector" : transport_->rank_name(notice->rank);
    if (notice->rank < 0) log_error("{}", notice->reason);
    end(shut_down_status(*notice, who, transport_->placed(notice->origin)));
  }
}

void Engine::execute(Plan&& plan) {
  recorder_.on_plan();
  Plan kept;
  if (tuner_) kept = plan;
  if (Status status = executor_->run(std::move(plan)); !status.ok()) end(status);
  if (tuner_) note_step(kept);
}

// The tuner counts steps: a step ends when a name repeats.
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

TimePoint Engine::next_deadline(bool awaits) const { return ended_ ? kNever : agreement_->next_deadline(awaits); }

void Engine::end(const Status& status) {
  if (ended_) return;
  ended_ = true;
  if (status.code() == Code::peer_lost) log_warning("{}", status.message());
  if (transport_->failed()) backends_->give_up_device(status);
  operations_->close(status);  // before finish_all, which ends tasks added earlier
  for (const TaskRef& task : operations_->finish_all(status)) on_done(*task);
  on_done(*ending_);
}

void Engine::on_launched() {
  if (turn_.waiting() > 0) turn_.wake();
  transport_->waiter().wake_driver();
}

void Engine::on_done(Task& task) {
  bool by_driver = driving_here == this;
  if (!task.operations.empty() && task.operations.front().request.kind == Kind::join) {
    joined_.store(false, std::memory_order_relaxed);
    join_announced_ = false;
  }
  task.done.store(true, std::memory_order_seq_cst);
  if (task.on_done) task.on_done(task);
  if (task.listener.exchange(Task::Listener::over) == Task::Listener::attached) task.late_listener(task);
  // Wake sleeping waiters; the driver needs no wake-up, unless a backend's thread finished the task.
  if (turn_.waiting() > (by_driver && driver_waits_ ? 1 : 0)) turn_.wake();
  if (!by_driver) transport_->waiter().wake();
}

// ---- ending ----

void Engine::set_departure(Origin origin) {
  std::lock_guard lock(departure_mutex_);
  departure_ = std::move(origin);
}

Origin Engine::why_leaving() const {
  std::lock_guard lock(departure_mutex_);
  Origin origin = departure_;
  origin.rank = world_.rank;
  return transport_->placed(std::move(origin));
}

bool Engine::is_driven_here() const { return driving_here == this; }

// Only the driving thread may end the engine, because it may be preparing an operation. So this waits until the driver
// has done so. A driver that waits for a rank inside a collective is made to leave it, and one that waits for the
// root's answer ends without it.
void Engine::shutdown() {
  std::lock_guard lock(shutdown_mutex_);
  if (is_shut_down_ || !thread_.joinable()) return;
  is_shut_down_ = true;
  TimePoint patience = Clock::now() + kGoodbyePatience;
  shutdown_wanted_.store(true);
  transport_->waiter().leave_by(patience, why_leaving());  // also wakes a thread that sleeps
  if (!wait(ending_, patience)) {
    leaves_alone_.store(true);
    transport_->waiter().wake();
    wait(ending_, kNever);
  }
  transport_->peers().say_goodbye();
  thread_.request_stop();
  transport_->waiter().wake();
  turn_.wake();
  thread_.join();
  take_last_turn();
  if (watch_ != nullptr) watch_->stop();
  agreement_->leave(Clock::now() + kGoodbyePatience);
  executor_->drain();
  recorder_.set_timeline(nullptr);
  turn_.give_back(true);
  turn_.end_waiting();
}

// Waiting threads are returning. A thread that waits for a polled backend drives until that is done; after a while it
// gives up.
void Engine::take_last_turn() {
  TimePoint patience = Clock::now() + kGoodbyePatience;
  turn_.begin_waiting();
  while (!turn_.try_take()) {
    turn_.sleep([] { return false; }, patience);
    if (patience == kNever || Clock::now() < patience) continue;
    patience = kNever;
    gives_up_.store(true);
    transport_->waiter().wake();
  }
}

}  // namespace hvd
