#include "elastic/driver.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/joined.h"

namespace hvd::elastic {
namespace {

constexpr size_t kMaxReasons = 16;  // in one message; hosts that come and go for days must not use up the memory

std::string end_of(const WorkerExited& event) {
  if (event.signal != 0) return fmt::format("was killed by signal {}", event.signal);
  return fmt::format("ended with exit code {}", event.code);
}

}  // namespace

Driver::Driver(const Settings& settings, TimePoint now)
    : settings_(settings), hosts_(settings_.back_off, settings_.seed), now_(now) {
  settle();  // the wait for hosts begins; its Say is returned with the actions of the first event
}

void Driver::on(const Event& event, TimePoint now, std::vector<Action>& actions) {
  now_ = std::max(now_, now);
  if (finished()) return;
  std::visit([&](const auto& each) { heard(each); }, event);
  settle();
  std::move(actions_.begin(), actions_.end(), std::back_inserter(actions));
  actions_.clear();
}

int Driver::resets() const { return generation_ == Generation{0} ? 0 : static_cast<int>(generation_) - 1; }

void Driver::heard(const HostsDiscovered& event) {
  std::string changes = hosts_.list(event.hosts);
  if (changes.empty()) return;
  say(LogLevel::info, "hosts: " + changes);
  for (Worker& worker : workers_) {
    bool listed = hosts_.has(worker.host, worker.slot);
    if (listed == worker.listed) continue;
    worker.listed = listed;
    worker.announced = false;
    if (!listed && is_member(worker)) add_reason(name_of(worker) + " has lost its slot");
  }
}

void Driver::heard(const WorkerReady& event) {
  Worker* worker = find(event.id);
  if (worker == nullptr) {
    uint64_t id = static_cast<uint64_t>(event.id);
    say(LogLevel::info,
        fmt::format("worker {} asks for a place, but the job has continued without it: telling it to leave", id));
    act(LeaveWorker{event.id, "the job has continued without this worker"});
    return;
  }
  if (worker->is(WorkerState::stopping)) return;
  if (worker->is(WorkerState::leaving)) {
    act(LeaveWorker{event.id, "it was told to leave before"});
    return;
  }
  if (event.lost_rank) accuse(*worker, *event.lost_rank);
  worker->accused.reset();
  if (worker->is(WorkerState::ready)) return;
  if (is_member(*worker) && !regroup_since_) regroup_since_ = now_;
  worker->state = WorkerState::ready;
  worker->since = now_;
}

void Driver::accuse(const Worker& accuser, int rank) {
  if (!is_member(accuser) || rank < 0 || static_cast<size_t>(rank) >= members_.size()) return;
  Worker* accused = find(members_[static_cast<size_t>(rank)]);
  if (accused == nullptr || accused->id == accuser.id || !accused->is(WorkerState::busy) || accused->accused) return;
  accused->accused = now_;
}

void Driver::heard(const WorkerExited& event) {
  Worker* worker = find(event.id);
  if (worker == nullptr) return;
  bool success = event.code == 0 && event.signal == 0;
  if (worker->is_ending() || phase_ == Phase::failing || (phase_ == Phase::finishing && success)) {
    remove(event.id);
    return;
  }
  if (settings_.is_static) {
    if (!success || event.was_stopped) note_failure(fmt::format("{} {}", name_of(*worker), end_of(event)));
    remove(event.id);
    return;
  }
  bool has_finished = success && worker->is(WorkerState::busy);
  if (worker->going && !has_finished) {
    say(LogLevel::info, name_of(*worker) + " has left as announced");
    hosts_.rest(worker->host, now_, settings_.leave_hold);
    remove(event.id);
    return;
  }
  // A success ends the job: of a worker that was training, or of a script that never asks for a place.
  if (has_finished || (success && worker->is(WorkerState::starting) && generation_ == Generation{0})) {
    say(LogLevel::info, name_of(*worker) + " has finished: the job ends when the others do");
    phase_ = Phase::finishing;
    finish_by_ = after(now_, settings_.finish_grace);
    remove(event.id);
    return;
  }
  lost(*worker, end_of(event) + (worker->is(WorkerState::starting) ? " before it was ready" : ""));
  remove(event.id);
}

void Driver::heard(const WorkerReported& event) {
  if (!settings_.is_static || event.awaited.value_or(-1) < 0) return;
  WorkerId awaited{static_cast<uint64_t>(*event.awaited)};
  if (find(awaited) != nullptr) awaited_.insert(awaited);
}

void Driver::heard(const WorkerLeaving& event) {
  Worker* worker = find(event.id);
  if (worker == nullptr || worker->going || worker->is_ending()) return;
  say(LogLevel::info, fmt::format("{} will leave: {}", name_of(*worker), event.reason));
  worker->going = true;
  worker->announced = false;
  if (is_member(*worker)) add_reason(name_of(*worker) + " leaves");
  hosts_.rest(worker->host, now_, settings_.leave_hold);
}

void Driver::heard(const StartFailed& event) {
  Worker* worker = find(event.id);
  if (worker == nullptr) return;
  if (settings_.is_static) {
    note_failure(fmt::format("{} could not be started: {}", name_of(*worker), event.reason));
  } else if (!worker->is_ending()) {
    Duration rest = hosts_.failed(worker->host, now_);
    last_failure_ = fmt::format("{} could not be started: {}", name_of(*worker), event.reason);
    say(LogLevel::warning, fmt::format("{}; retrying the host in {:.1f} s", last_failure_, seconds_of(rest)));
  }
  remove(event.id);
}

void Driver::heard(const HostLost& event) {
  std::string news = fmt::format("host {} is lost: {}", event.host, event.reason);
  say(LogLevel::warning, news);
  if (settings_.is_static) note_failure(std::move(news));
  hosts_.failed(event.host, now_);
  std::vector<Worker> there;
  std::copy_if(workers_.begin(), workers_.end(), std::back_inserter(there),
               [&](const Worker& worker) { return worker.host == event.host; });
  for (const Worker& worker : there) {
    bool is_unexpected = !worker.is_ending() && !worker.going && phase_ != Phase::failing;
    if (is_unexpected && !settings_.is_static) lost(worker, "is lost with its host");
    // Perhaps only its connection to the launcher is lost.
    if (worker.is(WorkerState::ready)) act(LeaveWorker{worker.id, "the launcher has lost its host: " + event.reason});
    remove(worker.id);
  }
}

void Driver::heard(const StopJob& event) {
  if (phase_ != Phase::failing) fail(event.reason, failing_since_ ? 1 : event.exit_code);
}

void Driver::lost(const Worker& worker, const std::string& how) {
  Duration rest = hosts_.failed(worker.host, now_);
  last_failure_ = fmt::format("{} {}", name_of(worker), how);
  std::string then;
  if (phase_ == Phase::running) then = fmt::format("; its host gets no new worker for {:.1f} s", seconds_of(rest));
  say(LogLevel::warning, last_failure_ + then);
  if (!is_member(worker) && generation_ != Generation{0}) return;
  if (failures_.size() < kMaxReasons) failures_.push_back(last_failure_);
  add_reason(last_failure_);
}

void Driver::remove(WorkerId id) {
  std::erase_if(workers_, [&](const Worker& worker) { return worker.id == id; });
  awaited_.erase(id);
  changed_ = true;
}

void Driver::add_reason(std::string reason) {
  bool is_known = std::find(reasons_.begin(), reasons_.end(), reason) != reasons_.end();
  if (!is_known && reasons_.size() < kMaxReasons) reasons_.push_back(std::move(reason));
}

void Driver::leave(Worker& worker, std::string reason) {
  say(LogLevel::info, fmt::format("telling {} to leave: {}", name_of(worker), reason));
  act(LeaveWorker{worker.id, std::move(reason)});
  worker.state = WorkerState::leaving;
  worker.since = now_;
}

void Driver::stop(Worker& worker) {
  act(StopWorker{worker.id});
  worker.state = WorkerState::stopping;
  worker.since = now_;
}

void Driver::fail(std::string reason, int exit_code) {
  phase_ = Phase::failing;
  exit_code_ = exit_code;
  act(Fail{std::move(reason)});
  if (settings_.is_static) return stop_all();
  for (Worker& worker : workers_) {
    if (!worker.is(WorkerState::stopping)) stop(worker);
  }
}

// A static job decides only when to end, and its summary reports that.
void Driver::say(LogLevel level, std::string text) {
  if (!settings_.is_static) actions_.emplace_back(Say{level, std::move(text)});
}

bool Driver::is_due(TimePoint time) {
  if (time <= now_) return true;
  timer_ = std::min(timer_, time);
  return false;
}

Worker* Driver::find(WorkerId id) {
  auto worker = std::lower_bound(workers_.begin(), workers_.end(), id,
                                 [](const Worker& each, WorkerId sought) { return each.id < sought; });
  return worker != workers_.end() && worker->id == id ? &*worker : nullptr;
}

bool Driver::is_member(const Worker& worker) const { return !worker.is_newcomer() && worker.generation == generation_; }

bool Driver::is_late(const Worker& worker) const { return worker.is(WorkerState::busy) && !is_member(worker); }

bool Driver::is_whole() const {
  auto works = [&](const Worker& worker) { return is_member(worker) && worker.is(WorkerState::busy); };
  return !members_.empty() &&
         std::count_if(workers_.begin(), workers_.end(), works) == static_cast<ptrdiff_t>(members_.size());
}

bool Driver::is_last_with_state(const Worker& worker) const {
  bool has_heir = false;
  for (const Worker& other : workers_) {
    if (other.id == worker.id || other.is_ending()) continue;
    if (!other.is_newcomer() && !other.going) return false;
    has_heir |= other.is_usable();
  }
  return has_heir && !worker.is_newcomer();
}

bool Driver::is_reset_left() const {
  return generation_ == Generation{0} || !settings_.reset_limit || resets() < *settings_.reset_limit;
}

int Driver::count_usable() const {
  return static_cast<int>(std::count_if(workers_.begin(), workers_.end(),
                                        [&](const Worker& worker) { return worker.is_usable() && !is_late(worker); }));
}

int Driver::limit() const { return settings_.max_np.value_or(INT32_MAX); }

}  // namespace hvd::elastic
