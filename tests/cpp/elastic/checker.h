// Looks at everything that goes into a driver and comes out of it, and says what is against the rules. It knows the
// rules of the interface, and nothing of how the driver keeps them. Copyable, as the driver is.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "elastic/driver.h"
#include "elastic/job.h"

namespace hvd::elastic {

class Checker {
 public:
  explicit Checker(Settings settings) : settings_(std::move(settings)) {}

  // The first rule that was broken; empty: none.
  const std::string& complaint() const { return complaint_; }

  void expect(bool holds, const char* rule) {
    if (!holds && complaint_.empty()) complaint_ = rule;
  }

  void saw(const Event& event, TimePoint now) {
    now_ = now;
    std::visit([&](const auto& each) { saw(each); }, event);
  }

  void saw(const std::vector<Action>& actions, const Driver& driver) {
    bool says = false, decides = false;
    for (const Action& action : actions) {
      expect(!finished_, "an action after Finish");
      std::visit([&](const auto& each) { saw(each); }, action);
      says |= std::holds_alternative<Say>(action) || std::holds_alternative<Fail>(action);
      decides |= !std::holds_alternative<Say>(action) && !std::holds_alternative<Finish>(action);
    }
    expect(says || !decides || failed_, "a decision without a reason");
    expect(driver.next_timer() > now_, "a timer that has passed");
    expect(driver.finished() == finished_, "finished() and Finish differ");
    expect(driver.generation() == generation_, "generation() is not the last that was assigned");
    bool somebody_asks = std::any_of(workers_.begin(), workers_.end(), [](const Seen& each) { return each.asks; });
    bool has_end = driver.next_timer() != kNever || !driver.waiting_for().empty();
    expect(!somebody_asks || has_end || finished_, "a worker waits, and for nothing that has a name or an end");
    auto lost_its_world = [&](const Seen& each) {
      return each.asks && each.generation > 0 && each.generation == static_cast<uint64_t>(generation_);
    };
    bool is_broken = std::any_of(workers_.begin(), workers_.end(), lost_its_world);
    expect(!is_broken || driver.next_timer() != kNever || finished_, "a survivor waits without an end");
  }

 private:
  struct Seen {
    std::string host;
    int slot = 0;
    bool lives = true;  // as far as the driver can know
    bool asks = false;  // and has no answer
    bool going = false, told_to_leave = false;
    TimePoint stopped = kNever;
    uint64_t generation = 0;
    int rank = -1;
  };

  Seen* find(WorkerId id) {
    return number(id) >= 1 && number(id) <= workers_.size() ? &workers_[number(id) - 1] : nullptr;
  }
  void rest(const std::string& host, Duration duration) {
    if (!failed_) rests_[host] = std::max(rests_[host], now_ + duration);
  }

  void saw(const HostsDiscovered& event) {
    listed_.clear();
    for (const HostSlots& host : event.hosts) listed_[host.name] = host.slots;
  }
  void saw(const WorkerReady& event) { find(event.id)->asks = true; }
  void saw(const WorkerExited& event) {
    Seen& worker = *find(event.id);
    bool failed = event.code != 0 || event.signal != 0;
    bool by_itself = worker.lives && worker.stopped == kNever && !worker.told_to_leave;
    if (by_itself && worker.going)
      rest(worker.host, settings_.leave_hold);
    else if (by_itself && failed)
      rest(worker.host, settings_.back_off.lower);
    worker.lives = worker.asks = false;
  }
  void saw(const WorkerReported&) {}
  void saw(const WorkerLeaving& event) { find(event.id)->going = true; }
  void saw(const StartFailed& event) {
    Seen& worker = *find(event.id);
    if (worker.lives && worker.stopped == kNever) rest(worker.host, settings_.back_off.lower);
    worker.lives = worker.asks = false;
  }
  void saw(const HostLost& event) {
    rest(event.host, settings_.back_off.lower);
    for (Seen& worker : workers_) {
      if (worker.host == event.host) worker.lives = false;
    }
  }
  void saw(const StopJob&) {}
  void saw(const Timer&) {}

  void saw(const StartWorker& action) {
    expect(!failed_, "a start after Fail");
    expect(number(action.id) == workers_.size() + 1, "an id that is not the next");
    expect(listed_.contains(action.host) && action.slot < listed_[action.host], "a start on a slot that is not listed");
    expect(rests_[action.host] <= now_, "a start on a host that rests");
    for (const Seen& other : workers_) {
      bool is_there = other.lives && other.host == action.host && other.slot == action.slot;
      bool is_given_up = other.stopped != kNever && now_ - other.stopped >= settings_.stop_grace;
      expect(!is_there || is_given_up, "two workers on one slot");
    }
    workers_.push_back({.host = action.host, .slot = action.slot});
  }

  void saw(const StopWorker& action) {
    Seen* worker = find(action.id);
    expect(worker != nullptr && worker->lives, "a stop of a worker that does not live");
    if (worker == nullptr) return;
    expect(worker->stopped == kNever, "a second stop of a worker");
    worker->stopped = now_;
    worker->asks = false;
  }

  void saw(const StopAll&) { expect(false, "an action of static jobs"); }

  void saw(const LeaveWorker& action) {
    Seen* worker = find(action.id);
    expect(worker != nullptr && worker->asks, "an answer to a worker that has not asked");
    if (worker == nullptr) return;
    worker->asks = false;
    worker->told_to_leave = true;
  }

  void saw(const NotifyWorkers& action) {
    expect(!failed_, "a notice after Fail");
    expect(action.ids == members_, "a notice to others than the members");
    expect(action.timestamp > last_timestamp_, "a timestamp that is not later");
    for (WorkerId id : action.ids) expect(find(id)->lives && !find(id)->asks, "a notice to a world that is broken");
    last_timestamp_ = action.timestamp;
  }

  void saw(const AssignGeneration& table) {
    int size = static_cast<int>(table.places.size());
    uint64_t before = static_cast<uint64_t>(generation_);
    expect(!failed_, "a generation after Fail");
    expect(static_cast<uint64_t>(table.generation) == before + 1, "a generation that is not the next");
    expect(size >= settings_.min_np, "a generation below the minimum");
    expect(size <= settings_.max_np.value_or(size), "a generation above the maximum");
    expect(!settings_.reset_limit || before <= static_cast<uint64_t>(*settings_.reset_limit),
           "more resets than the limit");
    check_numbers(table);
    check_members(table, before);
    generation_ = table.generation;
    members_.clear();
    for (const Place& place : table.places) {
      Seen* worker = find(place.id);
      if (worker == nullptr) continue;
      worker->asks = false;
      worker->generation = before + 1;
      worker->rank = place.rank;
      members_.push_back(place.id);
    }
  }

  void check_numbers(const AssignGeneration& table) {
    int size = static_cast<int>(table.places.size()), rank = 0;
    std::set<WorkerId> ids;
    std::map<int, int> rows;
    for (const HostSlots& host : table.hosts) {
      for (int local_rank = 0; local_rank < host.slots; local_rank++, rank++) {
        expect(rank < size, "hosts and places differ");
        if (rank >= size) return;
        const Place& place = table.places[static_cast<size_t>(rank)];
        Place right{place.id, host.name, rank, size, local_rank, host.slots, rows[local_rank]++, place.cross_size};
        expect(place == right, "a rank is wrong");
        expect(ids.insert(place.id).second, "a worker has two ranks");
      }
    }
    expect(rank == size, "hosts and places differ");
    for (const Place& place : table.places) expect(place.cross_size == rows[place.local_rank], "a cross size is wrong");
  }

  void check_members(const AssignGeneration& table, uint64_t before) {
    int last_rank = -1;
    bool has_state = before == 0, is_first_survivor = true;
    for (const Place& place : table.places) {
      Seen* worker = find(place.id);
      expect(worker != nullptr && worker->lives && worker->asks, "a member that does not live and ask");
      if (worker == nullptr) return;
      expect(worker->stopped == kNever && !worker->told_to_leave, "a member that was told to go");
      expect(worker->host == place.host, "a member on another host than it was started on");
      has_state |= worker->generation > 0;
      if (before == 0 || worker->generation != before) continue;
      expect(!is_first_survivor || place.rank == 0, "rank 0 is not a survivor, and there is one");
      expect(worker->rank > last_rank, "survivors have changed their order");
      is_first_survivor = false;
      last_rank = worker->rank;
    }
    expect(has_state, "a generation in which no worker has the training state");
  }

  void saw(const Say&) {}
  void saw(const Fail&) { failed_ = true; }
  void saw(const Finish&) {
    for (const Seen& worker : workers_) {
      bool is_given_up = worker.stopped != kNever && now_ - worker.stopped >= settings_.stop_grace;
      expect(!worker.lives || is_given_up, "the job ends before its workers");
    }
    finished_ = failed_ = true;
  }

  Settings settings_;
  TimePoint now_;
  std::vector<Seen> workers_;  // by id
  std::vector<WorkerId> members_;
  std::map<std::string, int> listed_;
  std::map<std::string, TimePoint> rests_;  // at least until then
  Generation generation_{0};
  double last_timestamp_ = 0;
  bool failed_ = false, finished_ = false;
  std::string complaint_;
};

}  // namespace hvd::elastic
