// What follows from the driver's state and the time. Each rule examines all workers and acts on those that it applies
// to; settle() repeats all rules until none acts. Each action moves a worker, or the job, one step towards its end or
// into a generation, so this terminates.
#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/joined.h"
#include "elastic/driver.h"

namespace hvd::elastic {

void Driver::settle() {
  do {
    changed_ = false;
    waits_ = false;
    timer_ = kNever;
    waiting_for_.clear();
    end_overdue();
    switch (phase_) {
      case Phase::running:
        if (settings_.is_static) {
          settle_static();
          break;
        }
        check_state_is_left();
        if (phase_ == Phase::running) dismiss_unplaced();
        if (phase_ == Phase::running) start_missing();
        if (phase_ == Phase::running) is_whole() ? announce_changes() : form();
        break;
      case Phase::finishing: end_finishing(); break;
      case Phase::failing: end_failing(); break;
      case Phase::finished: break;
    }
  } while (changed_);
  if (!waits_) waiting_since_.reset();
}

// Every wait for a worker is limited.
void Driver::end_overdue() {
  std::vector<WorkerId> forgotten;
  for (Worker& worker : workers_) {
    if (worker.is(WorkerState::stopping)) {
      if (is_due(after(worker.since, settings_.stop_grace))) forgotten.push_back(worker.id);
    } else if (worker.is(WorkerState::leaving)) {
      if (!is_due(after(worker.since, settings_.leave_grace))) continue;
      say(LogLevel::warning, name_of(worker) + " was told to leave and did not: stopping it");
      stop(worker);
    } else if (worker.accused) {
      if (!is_due(after(*worker.accused, settings_.accused_grace))) continue;
      lost(worker, "fell silent and was stopped");
      stop(worker);
    } else if (worker.is(WorkerState::starting) || is_late(worker)) {
      Duration limit = worker.is(WorkerState::starting) ? time_to_come() : settings_.elastic_timeout;
      if (!is_due(after(worker.since, limit))) continue;
      lost(worker, fmt::format("has not asked for a place for {:.0f} s and was stopped", seconds_of(limit)));
      stop(worker);
    }
  }
  for (WorkerId id : forgotten) {
    say(LogLevel::warning, name_of(*find(id)) + " was stopped, but its end was not reported: continuing without it");
    remove(id);
  }
}

// Only workers have the training state: if all that have it are gone, new workers would start from scratch.
void Driver::check_state_is_left() {
  auto lives = [&](const Worker& worker) {
    return !worker.is_ending() && (generation_ == Generation{0} || !worker.is_newcomer());
  };
  if (std::any_of(workers_.begin(), workers_.end(), lives)) return;
  if (generation_ == Generation{0}) {
    if (!failures_.empty()) fail("every worker failed before training began: " + joined(failures_, "; "));
    return;
  }
  std::string how = failures_.empty() ? "all have left" : joined(failures_, "; ");
  fail(fmt::format("no worker of generation {} is left: {}", static_cast<uint64_t>(generation_), how));
}

// Workers that ask, or are about to, and will never get a place. Those that have been in a generation are dismissed
// only after the next one has formed without them: until then they have the state, and their host may return.
void Driver::dismiss_unplaced() {
  auto dismiss = [&](Worker& worker, const std::string& reason) {
    if (worker.is(WorkerState::ready)) return leave(worker, reason);
    say(LogLevel::info, fmt::format("{} is stopped: {}", name_of(worker), reason));
    stop(worker);
  };
  bool is_at_work = is_whole();
  int surplus = count_usable() - limit();
  for (auto worker = workers_.rbegin(); worker != workers_.rend(); ++worker) {  // newest first
    if (worker->is_ending()) continue;
    bool is_outside = worker->is_newcomer() || (is_at_work && worker->is(WorkerState::ready));
    if (worker->going && worker->is(WorkerState::ready)) {
      if (!is_last_with_state(*worker)) dismiss(*worker, "it has asked to");
    } else if (is_outside && !worker->listed) {
      dismiss(*worker, "its slot is gone");
    } else if (is_outside && is_at_work && !is_reset_left()) {
      dismiss(*worker, "the reset limit allows no other generation");
    } else if (is_outside && surplus > 0 && worker->is_usable()) {
      dismiss(*worker, fmt::format("there are more workers than --max-np {}", limit()));
      surplus--;
    }
  }
}

void Driver::start_missing() {
  int room = std::min(limit(), hosts_.count_slots()) - count_usable();
  if (room <= 0) return;
  if (!is_reset_left()) {
    if (!std::exchange(said_reset_limit_, true)) {
      say(LogLevel::warning,
          fmt::format("the reset limit of {} is reached: starting no more workers", *settings_.reset_limit));
    }
    return;
  }
  std::set<std::pair<std::string, int>> taken;
  for (const Worker& worker : workers_) taken.emplace(worker.host, worker.slot);
  for (const HostSlots& host : hosts_.hosts()) {
    for (int slot = 0; slot < host.slots && room > 0; slot++) {
      if (taken.contains({host.name, slot})) continue;
      if (!is_due(hosts_.rests_until(host.name))) break;
      WorkerId id{++last_id_};
      workers_.push_back({.id = id, .host = host.name, .slot = slot, .started = now_, .since = now_});
      say(LogLevel::info, fmt::format("starting worker {} on host {}, slot {}", last_id_, host.name, slot));
      act(StartWorker{id, host.name, slot});
      room--;
    }
  }
}

// The generation is running. It is interrupted only if the next one can form: new workers must have asked, and if a
// slot is gone, enough others must remain. Until then its worker is kept. A worker that announced that it will leave
// goes in any case.
void Driver::announce_changes() {
  std::vector<Worker*> going, drained, joining;
  int staying = 0;
  bool is_starting = false;
  for (Worker& worker : workers_) {
    if (is_member(worker)) {
      staying += worker.is_usable();
      if (!worker.is_usable()) (worker.going ? going : drained).push_back(&worker);
    } else if (worker.is_usable()) {
      is_starting |= worker.is(WorkerState::starting);
      if (worker.is(WorkerState::ready)) joining.push_back(&worker);
    }
  }
  bool are_enough = staying + static_cast<int>(joining.size()) >= settings_.min_np;
  if (!drained.empty() && !are_enough) {
    wait(what_is_missing(settings_.min_np) + "; keeping workers that have lost their slots until then");
    if (phase_ != Phase::running) return;
    drained.clear();
  }
  std::vector<Worker*> removed = std::move(going);
  removed.insert(removed.end(), drained.begin(), drained.end());
  if (waiting_for_.empty() && !(removed.empty() && joining.empty()))
    waiting_for_ = fmt::format("generation {} to commit and re-form", static_cast<uint64_t>(generation_));
  for (auto* workers : {&removed, &joining}) std::erase_if(*workers, [](Worker* each) { return each->announced; });
  if (removed.empty() && is_starting && !joining.empty()) {
    auto earlier = [](const Worker* a, const Worker* b) { return a->since < b->since; };
    if (!is_due(gathers_until(**std::min_element(joining.begin(), joining.end(), earlier)))) return;
  }
  if (!removed.empty() || !joining.empty()) announce(removed, joining);
}

// New workers are added in one generation rather than in several, because each one resets the job. The first that has
// asked waits for those that were started with it until they have taken twice as long as it did; for others a short
// time. The generation keeps running meanwhile.
TimePoint Driver::gathers_until(const Worker& first) const {
  bool has_fellows = std::any_of(workers_.begin(), workers_.end(), [&](const Worker& worker) {
    return worker.is(WorkerState::starting) && worker.is_usable() &&
           worker.started < after(first.started, settings_.gather_grace);
  });
  Duration patience = settings_.gather_grace;
  if (has_fellows) patience = std::max<Duration>(patience, first.since - first.started);
  return after(first.since, patience);
}

void Driver::announce(const std::vector<Worker*>& removed, const std::vector<Worker*>& joining) {
  HostChange change = joining.empty() ? HostChange::removed : removed.empty() ? HostChange::added : HostChange::mixed;
  for (Worker* worker : removed) worker->announced = true;
  for (Worker* worker : joining) {
    worker->announced = true;
    add_reason(name_of(*worker) + " joins");
  }
  last_timestamp_ = std::max(settings_.epoch_offset + seconds_of(now_.time_since_epoch()), last_timestamp_ + 1e-3);
  say(LogLevel::info,
      fmt::format("asking generation {} to re-form: {}", static_cast<uint64_t>(generation_), joined(reasons_, "; ")));
  act(NotifyWorkers{members_, change, last_timestamp_});
}

void Driver::end_finishing() {
  for (Worker& worker : workers_) {
    if (worker.is_ending()) continue;
    if (worker.is(WorkerState::ready)) {
      leave(worker, "the job has finished");
    } else if (worker.is(WorkerState::starting) || is_late(worker)) {  // the result does not depend on them
      stop(worker);
    } else if (is_due(finish_by_)) {
      lost(worker, fmt::format("has not finished {:.0f} s after the first worker did, and was stopped",
                               seconds_of(settings_.finish_grace)));
      stop(worker);
    }
  }
  if (!workers_.empty()) {
    waiting_for_ = fmt::format("{} more workers to finish", workers_.size());
    return;
  }
  if (!failures_.empty()) {
    exit_code_ = 1;
    act(Fail{"not all workers of the last generation succeeded: " + joined(failures_, "; ")});
  }
  phase_ = Phase::finished;
  act(Finish{exit_code_});
}

void Driver::end_failing() {
  if (!workers_.empty()) {
    waiting_for_ = fmt::format("the end of {} workers that were stopped", workers_.size());
    return;
  }
  phase_ = Phase::finished;
  act(Finish{exit_code_});
}

}  // namespace hvd::elastic
