// How a job carries out the decisions of its driver.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "launcher/job/job.h"
#include "launcher/workers/environment.h"

namespace hvd::launcher {
namespace {

int number_of(elastic::WorkerId id) { return static_cast<int>(id); }

}  // namespace

Host Job::host_named(const std::string& name) const {
  auto found = std::find_if(hosts_.begin(), hosts_.end(), [&](const Host& one) { return one.name == name; });
  return found == hosts_.end() ? Host{.name = name, .slots = 1} : *found;
}

// In an elastic job this is an estimate, as if all hosts were used as currently listed; hvd.init() gets the actual one.
Slot Job::slot_on(const std::string& host, int number) const {
  auto found = std::find_if(slots_.begin(), slots_.end(),
                            [&](const Slot& slot) { return slot.host == host && slot.local_rank == number; });
  return found == slots_.end() ? Slot{.host = host} : *found;
}

Start Job::start_of(const elastic::StartWorker& action, const Host& host) const {
  Start start{.worker = number_of(action.id),
              .local_rank = action.slot,
              .local_size = std::max(host.slots, action.slot + 1),
              .variables = rank_variables(slot_on(action.host, action.slot), slot_on(action.host, 0), options_)};
  if (!is_elastic_) return start;
  start.variables.emplace_back("HOROVOD_ELASTIC", "1");
  start.variables.emplace_back("HOROVOD_WORKER_ID", std::to_string(start.worker));
  if (options_.elastic_timeout)
    start.variables.emplace_back("HOROVOD_ELASTIC_TIMEOUT", std::to_string(*options_.elastic_timeout));
  return start;
}

Status Job::add_worker(WorkerRecord worker, std::string_view label, const std::string& folder) {
  for (WorkerStream stream : {WorkerStream::out, WorkerStream::err}) {
    auto output = RankOutput::open(options_, label, folder, stream, screen_);
    if (!output.ok()) return output.status();
    worker.streams.push_back(std::move(*output));
  }
  workers_.emplace(worker.id, std::move(worker));
  return {};
}

// Before anything starts: otherwise the first rank would run in vain.
Status Job::add_static_workers() {
  size_t digits = std::to_string(slots_.size() - 1).size();
  for (const Slot& slot : slots_) {
    WorkerRecord worker{.id = slot.rank, .host = slot.host, .rank = slot.rank};
    Status status =
        add_worker(std::move(worker), std::to_string(slot.rank), fmt::format("rank.{:0{}}", slot.rank, digits));
    if (!status.ok()) return status;
  }
  return {};
}

void Job::act(const elastic::StartWorker& action) {
  int id = number_of(action.id);
  if (is_elastic_) {
    Status status = add_worker({.id = id, .host = action.host}, fmt::format("{}:{}", action.host, action.slot),
                               fmt::format("worker.{}", id));
    if (!status.ok())
      return happened_.push_back(elastic::StartFailed{.id = action.id, .reason = std::string(status.message())});
  } else if (!failures_.empty()) {  // one before it could not be started
    WorkerRecord& worker = workers_.at(id);
    worker.is_over = true;
    end_outputs(worker);
    return happened_.push_back(elastic::StartFailed{.id = action.id, .reason = "the job is over"});
  }
  Host host = host_named(action.host);
  fleet_.start(host, start_of(action, host));
}

void Job::act(const elastic::StopWorker& action) { fleet_.stop(number_of(action.id)); }

void Job::act(const elastic::StopAll&) { stop_all(); }

void Job::act(const elastic::NotifyWorkers& action) {
  auto change = static_cast<HostsChanged::Change>(action.change);
  for (elastic::WorkerId id : action.ids)
    lines_.send(number_of(id), HostsChanged{.change = change, .timestamp = action.timestamp});
}

void Job::act(const elastic::AssignGeneration& action) {
  generation_ = action.generation;
  is_void_ = false;
  if (observatory_)
    observatory_->on_event(
        fmt::format("world {} has {} ranks", static_cast<uint64_t>(action.generation), action.places.size()));
  failures_.clear();  // earlier failures will not be the cause if the job ends
  for (const elastic::Place& place : action.places) {
    WorkerRecord* worker = find(number_of(place.id));
    if (worker == nullptr) continue;
    worker->rank = place.rank;
    worker->member_of = action.generation;
    for (RankOutput& stream : worker->streams) stream.set_label(std::to_string(place.rank));
    lines_.send(worker->id, Place{.generation = action.generation,
                                  .rank = place.rank,
                                  .size = place.size,
                                  .local_rank = place.local_rank,
                                  .local_size = place.local_size,
                                  .cross_rank = place.cross_rank,
                                  .cross_size = place.cross_size});
  }
  // One of them may have died since it asked.
  for (auto& [id, worker] : workers_)
    if (worker.is_over && worker.member_of == generation_)
      leave_world(worker, fmt::format("rank {} ended", worker.rank));
}

void Job::act(const elastic::LeaveWorker& action) { lines_.send(number_of(action.id), Dismissal{action.reason}); }

void Job::act(const elastic::Say& action) {
  if (action.level >= LogLevel::info || options_.verbose) screen_.say(action.text);
}

void Job::act(const elastic::Fail& action) {
  if (failure_.empty()) failure_ = action.reason;
  gather();
  for (const auto& [id, worker] : workers_)
    if (!worker.is_over) lines_.send(id, JobOver{action.reason});
}

void Job::act(const elastic::Finish& action) { exit_code_ = action.exit_code; }

}  // namespace hvd::launcher
