#include "launcher/job/elastic_job.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/joined.h"
#include "launcher/output/screen.h"
#include "launcher/workers/environment.h"

namespace hvd::launcher {
namespace {

constexpr size_t kLastLines = 20;
constexpr size_t kMostFailures = 64;                        // of one generation; the oldest are forgotten
constexpr Duration kEndPatience = std::chrono::seconds(5);  // from the end of a worker's line to that of its process
constexpr WorkerStream kEveryStream[] = {WorkerStream::out, WorkerStream::err};

int number_of(elastic::WorkerId id) { return static_cast<int>(id); }
elastic::WorkerId id_of(int worker) { return elastic::WorkerId{static_cast<uint64_t>(worker)}; }

std::vector<elastic::HostSlots> slots_of_all(const std::vector<Host>& hosts) {
  std::vector<elastic::HostSlots> all;
  all.reserve(hosts.size());
  for (const Host& host : hosts) all.push_back({host.name, host.slots});
  return all;
}

}  // namespace

ElasticJob::ElasticJob(const Parts& parts, std::vector<Host> hosts, std::vector<Contact> contacts)
    : options_(parts.options),
      lines_(parts.lines),
      screen_(parts.screen),
      signals_(parts.signals),
      began_(Clock::now()),
      fleet_(*this, parts.options, parts.meeting, parts.screen, parts.start_timeout, std::move(contacts)),
      driver_(parts.settings, began_),
      hosts_(std::move(hosts)) {
  if (options_.host_discovery_script.empty()) {
    hear_of(slots_of_all(hosts_));
  } else {
    discovery_.emplace(options_.host_discovery_script,
                       elastic::DiscoverySettings{.default_slots = options_.slots_per_host.value_or(1)});
  }
}

int ElasticJob::run() {
  start_observing();
  while (!driver_.finished()) step();
  while (observatory_ && observatory_->is_gathering()) step();
  if (discovery_) discovery_->stop();
  fleet_.stop_all();  // what workers have left behind
  while (!fleet_.is_empty()) step();
  fleet_.leave();
  while (!fleet_.has_left()) step();
  if (!failure_.empty() && stop_signal_ == 0) {
    if (!failures_.empty()) tell_caller(find_cause(failures_));
    screen_.show(WorkerStream::err, summary());
  }
  flush_at_end(screen_, signals_, set_, stop_signal_ != 0);
  return stop_signal_ != 0 ? 128 + stop_signal_ : exit_code_;
}

void ElasticJob::start_observing() {
  auto settings = observatory_settings(options_);
  if (!settings) return;
  observatory_.emplace(
      std::move(*settings), [this](const ObserveRequest& request) { return fleet_.observe(request); },
      [this](std::string_view text) { screen_.say(text); });
  observatory_->open();
}

void ElasticJob::step() {
  decide();
  screen_.set_status(driver_.waiting_for().empty() ? "" : "horovodrun: waiting for " + driver_.waiting_for());
  for (WorkerStream stream : kEveryStream) fleet_.hold_output(stream, screen_.is_full(stream));
  fleet_.add_to(set_);
  if (observatory_) observatory_->add_to(set_);
  lines_.add_to(set_);
  if (discovery_) discovery_->add_to(set_);
  screen_.add_to(set_);
  signals_.add_to(set_);
  set_.wake_at(driver_.next_timer());
  for (const auto& [id, worker] : workers_) set_.wake_at(worker.stop_at);
  set_.wait();
  screen_.flush();
  for (int signal : signals_.take_stop_signals()) on_stop_signal(signal);
  signals_.reap([&](pid_t pid, int status) {
    fleet_.on_reaped(pid, status);
    if (discovery_) discovery_->on_reaped(pid, status);
  });
  lines_.look(*this);
  fleet_.look();
  if (observatory_) observatory_->look();
  look_at_discovery();
  stop_lost();
  if (driver_.next_timer() <= Clock::now()) happened_.push_back(elastic::Timer{});
  decide();
  forget_ended();
}

void ElasticJob::decide() {
  while (!happened_.empty() && !driver_.finished()) {
    elastic::Event event = std::move(happened_.front());
    happened_.pop_front();
    std::vector<elastic::Action> actions;
    driver_.on(event, Clock::now(), actions);
    for (const elastic::Action& action : actions) std::visit([this](const auto& known) { act(known); }, action);
  }
}

void ElasticJob::on_stop_signal(int signal) {
  if (stop_signal_ != 0) return fleet_.kill_all();  // the user is in a hurry
  stop_signal_ = signal;
  auto lives = [](const auto& entry) { return !entry.second.is_over; };
  auto count = std::count_if(workers_.begin(), workers_.end(), lives);
  screen_.say(fmt::format("got {}, stopping {} worker{}", signal_name(signal), count, count == 1 ? "" : "s"));
  happened_.push_back(elastic::StopJob{.reason = "got " + signal_name(signal), .exit_code = 128 + signal});
}

void ElasticJob::look_at_discovery() {
  if (!discovery_) return;
  DiscoveryScript::News news = discovery_->look();
  for (const elastic::Say& said : news.said) act(said);
  for (elastic::HostsDiscovered& found : news.hosts) {
    hosts_.clear();
    for (const elastic::HostSlots& host : found.hosts) hosts_.push_back({.name = host.name, .slots = host.slots});
    hear_of(std::move(found.hosts));
  }
  if (news.status.ok()) return;
  failure_ = news.status.message();
  happened_.push_back(elastic::StopJob{.reason = failure_, .exit_code = 1});
}

void ElasticJob::hear_of(std::vector<elastic::HostSlots> hosts) {
  std::set<std::string> names;
  for (const elastic::HostSlots& host : hosts) names.insert(host.name);
  fleet_.set_listed(std::move(names));
  happened_.push_back(elastic::HostsDiscovered{std::move(hosts)});
}

// ---- what happens to workers ----

ElasticJob::WorkerRecord* ElasticJob::find(int id) {
  auto found = workers_.find(id);
  return found == workers_.end() ? nullptr : &found->second;
}

std::string ElasticJob::name_of(const WorkerRecord& worker) {
  return worker.rank < 0 ? fmt::format("worker {}", worker.id) : fmt::format("rank {}", worker.rank);
}

void ElasticJob::on_started(int worker, pid_t pid) {
  if (WorkerRecord* one = find(worker)) {
    one->pid = pid;
    if (observatory_) observatory_->on_started(worker, one->host, pid);
  }
  if (options_.verbose) screen_.say(fmt::format("worker {} is pid {}", worker, pid));
}

void ElasticJob::on_not_started(int worker, std::string_view reason) {
  WorkerRecord* one = find(worker);
  if (one == nullptr || std::exchange(one->is_over, true)) return;
  end_outputs(*one);
  note({.kind = Failure::Kind::not_started, .who = name_of(*one), .host = one->host, .reason = std::string(reason)});
  happened_.push_back(elastic::StartFailed{.id = id_of(worker), .reason = std::string(reason)});
}

void ElasticJob::on_output(int worker, WorkerStream stream, std::string_view bytes) {
  if (WorkerRecord* one = find(worker)) one->streams[static_cast<size_t>(stream)].take(bytes, screen_);
  if (observatory_) observatory_->on_output(worker, bytes);
}

void ElasticJob::on_output_end(int worker, WorkerStream stream) {
  if (WorkerRecord* one = find(worker)) one->streams[static_cast<size_t>(stream)].end(screen_);
}

void ElasticJob::end_outputs(WorkerRecord& worker) {
  for (RankOutput& stream : worker.streams) stream.end(screen_);
}

void ElasticJob::on_report(int worker, const EndReport& report) {
  WorkerRecord* one = find(worker);
  if (one == nullptr || one->report) return;
  one->report = report;
  if (report.rank >= 0) return;
  one->report->rank = one->rank;  // it failed before it knew
  if (report.origin.rank < 0) one->report->origin.rank = one->rank;
}

void ElasticJob::on_ended(int worker, const Ended& ended) {
  WorkerRecord* one = find(worker);
  if (one == nullptr || std::exchange(one->is_over, true)) return;
  one->stop_at = kNever;
  lines_.close(worker);
  fleet_.stop(worker);  // what it left behind
  const Ending& ending = ended.ending;
  if (observatory_) observatory_->on_ended(worker, describe(ending));
  if (ending.code() != 0) {
    std::string words = own_words(one->report);
    leave_world(*one, words.empty() ? fmt::format("rank {} ended ({})", one->rank, describe(ending))
                                    : fmt::format("rank {} {}", one->rank, words));
    if (!ended.was_stopped)
      note({.kind = ending.signalled ? Failure::Kind::signal : Failure::Kind::exit,
            .who = name_of(*one),
            .host = one->host,
            .rank = one->rank,
            .pid = one->pid,
            .ended = ended,
            .report = one->report});
  }
  happened_.push_back(elastic::WorkerExited{.id = id_of(worker),
                                            .code = ending.signalled ? 0 : ending.number,
                                            .signal = ending.signalled ? ending.number : 0});
}

void ElasticJob::on_host_lost(const std::string& host, std::string_view reason) {
  for (auto& [id, worker] : workers_) {
    if (worker.host != host || std::exchange(worker.is_over, true)) continue;
    worker.stop_at = kNever;
    lines_.close(id);
    end_outputs(worker);
    leave_world(worker, fmt::format("host {} is lost", host));
  }
  if (observatory_) observatory_->on_host_lost(host);
  note({.kind = Failure::Kind::host_lost, .host = host, .reason = std::string(reason)});
  happened_.push_back(elastic::HostLost{.host = host, .reason = std::string(reason)});
}

// ---- what workers say ----

void ElasticJob::on_ready(int worker, const WorkerReady& ready) {
  WorkerRecord* one = find(worker);
  if (one == nullptr || one->is_over) return;
  elastic::WorkerReady event{.id = id_of(worker)};
  if (ready.lost_rank >= 0 && one->member_of == ready.last) event.lost_rank = ready.lost_rank;
  leave_world(*one, fmt::format("rank {} came back{}{}", one->rank, ready.reason.empty() ? "" : ": ", ready.reason));
  happened_.push_back(event);
}

void ElasticJob::on_leaving(int worker, const WorkerLeaves& leaves) {
  WorkerRecord* one = find(worker);
  if (one != nullptr && !one->is_over)
    happened_.push_back(elastic::WorkerLeaving{.id = id_of(worker), .reason = leaves.reason});
}

// Usually its end, which is known in a moment. If its process lives on, it cannot be reached and has to go.
void ElasticJob::on_line_lost(int worker, std::string_view) {
  WorkerRecord* one = find(worker);
  if (one != nullptr && !one->is_over) one->stop_at = Clock::now() + kEndPatience;
}

void ElasticJob::stop_lost() {
  for (auto& [id, worker] : workers_) {
    if (worker.stop_at > Clock::now()) continue;
    worker.stop_at = kNever;
    screen_.say(fmt::format("worker {} on {} has lost its line to this launcher, and is stopped", id, worker.host));
    fleet_.stop(id);
  }
}

// Tells the workers that are still joining the same world not to wait for this one.
void ElasticJob::leave_world(WorkerRecord& worker, const std::string& reason) {
  Generation left = std::exchange(worker.member_of, Generation{0});
  if (left != generation_ || left == Generation{0} || std::exchange(is_void_, true)) return;
  for (const auto& [id, other] : workers_)
    if (!other.is_over && other.member_of == left) lines_.send(id, WorldVoid{.generation = left, .reason = reason});
}

// ---- what the driver decides ----

int ElasticJob::slots_of(const std::string& host) const {
  auto found = std::find_if(hosts_.begin(), hosts_.end(), [&](const Host& one) { return one.name == host; });
  return found == hosts_.end() ? 1 : found->slots;
}

// The slot that it would have if all hosts were used as they are listed now; hvd.init() tells the right one.
Slot ElasticJob::likely_slot(const elastic::StartWorker& action) const {
  int total = 0;
  for (const Host& host : hosts_) total += host.slots;
  auto slots = assign(hosts_, std::min(total, options_.max_num_proc.value_or(total)));
  if (slots.ok()) {
    for (const Slot& slot : *slots)
      if (slot.host == action.host && slot.local_rank == action.slot) return slot;
  }
  return {.host = action.host};
}

Start ElasticJob::start_of(const elastic::StartWorker& action, int slots) const {
  Start start{.worker = number_of(action.id),
              .local_rank = action.slot,
              .local_size = std::max(slots, action.slot + 1),
              .variables = rank_variables(likely_slot(action))};
  start.variables.emplace_back("HOROVOD_ELASTIC", "1");
  start.variables.emplace_back("HOROVOD_WORKER_ID", std::to_string(start.worker));
  if (options_.elastic_timeout)
    start.variables.emplace_back("HOROVOD_ELASTIC_TIMEOUT", std::to_string(*options_.elastic_timeout));
  return start;
}

void ElasticJob::act(const elastic::StartWorker& action) {
  int id = number_of(action.id);
  std::string label = fmt::format("{}:{}", action.host, action.slot), folder = fmt::format("worker.{}", id);
  auto out = RankOutput::open(options_, label, folder, WorkerStream::out, screen_);
  auto err = RankOutput::open(options_, label, folder, WorkerStream::err, screen_);
  if (!out.ok() || !err.ok()) {
    happened_.push_back(elastic::StartFailed{
        .id = action.id, .reason = std::string((out.ok() ? err.status() : out.status()).message())});
    return;
  }
  int slots = slots_of(action.host);
  Start start = start_of(action, slots);
  workers_.emplace(id, WorkerRecord{.id = id, .host = action.host, .streams = {std::move(*out), std::move(*err)}});
  auto host = std::find_if(hosts_.begin(), hosts_.end(), [&](const Host& one) { return one.name == action.host; });
  fleet_.start(host == hosts_.end() ? Host{.name = action.host, .slots = slots} : *host, slots, start);
}

void ElasticJob::act(const elastic::StopWorker& action) { fleet_.stop(number_of(action.id)); }

void ElasticJob::act(const elastic::NotifyWorkers& action) {
  auto change = static_cast<HostsChanged::Change>(action.change);
  for (elastic::WorkerId id : action.ids)
    lines_.send(number_of(id), HostsChanged{.change = change, .timestamp = action.timestamp});
}

void ElasticJob::act(const elastic::AssignGeneration& action) {
  generation_ = action.generation;
  is_void_ = false;
  if (observatory_)
    observatory_->on_event(fmt::format("world {} has {} ranks", static_cast<uint64_t>(action.generation), action.places.size()));
  failures_.clear();  // what went wrong before is not what will end the job
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

void ElasticJob::act(const elastic::LeaveWorker& action) {
  lines_.send(number_of(action.id), Dismissal{action.reason});
}

void ElasticJob::act(const elastic::Say& action) {
  if (action.level >= LogLevel::info || options_.verbose) screen_.say(action.text);
}

void ElasticJob::act(const elastic::Fail& action) {
  if (failure_.empty()) failure_ = action.reason;
  if (observatory_) observatory_->gather("The job failed: " + action.reason);
  for (const auto& [id, worker] : workers_)
    if (!worker.is_over) lines_.send(id, JobOver{action.reason});
}

void ElasticJob::act(const elastic::Finish& action) { exit_code_ = action.exit_code; }

// ---- how it ends ----

// Once the job has failed, the rest only ends with it.
void ElasticJob::note(Failure failure) {
  if (!failure_.empty()) return;
  failure.when = Clock::now();
  if (failures_.size() == kMostFailures) failures_.erase(failures_.begin());
  failures_.push_back(std::move(failure));
}

// Workers that fail before they join can do so for days in one generation. Those that ended are kept only for the last
// lines of one that failed, or that others have lost and that was stopped before it could. Called when the driver has
// heard of all of them.
void ElasticJob::forget_ended() {
  std::erase_if(workers_, [&](const auto& entry) {
    const WorkerRecord& worker = entry.second;
    if (!worker.is_over || !worker.streams[0].has_ended() || !worker.streams[1].has_ended()) return false;
    return std::none_of(failures_.begin(), failures_.end(), [&](const Failure& failure) {
      bool is_lost = failure.is_consequence() && failure.report->origin.pid == worker.pid;
      return failure.pid > 0 && (failure.pid == worker.pid || is_lost);
    });
  });
}

const ElasticJob::WorkerRecord* ElasticJob::find_failed(const Failure& failure) const {
  if (failure.pid <= 0) return nullptr;
  const WorkerRecord* found = nullptr;
  for (const auto& [id, worker] : workers_)
    if (worker.pid == failure.pid || (found == nullptr && worker.rank == failure.rank)) found = &worker;
  return found;
}

std::string ElasticJob::summary() const {
  std::string text = fmt::format("horovodrun: {}\n", failure_);
  std::string note = observatory_ ? observatory_->dump_note() : "";
  if (!note.empty()) note += "\n";
  if (failures_.empty()) return text + note;
  const Failure cause = find_cause(failures_);
  text += fmt::format("The last that went wrong: {}\n", describe(cause, began_));
  if (std::string words = own_words(cause.report); !words.empty() && cause.kind != Failure::Kind::told)
    text += fmt::format("It {}\n", words);
  std::vector<int> lost;
  for (const Failure& failure : failures_)
    if (failure.is_consequence() && failure.rank != cause.rank) lost.push_back(failure.rank);
  if (!lost.empty()) text += fmt::format("After that: {} lost it.\n", name_ranks(lost));
  std::vector<std::string_view> lines;
  if (const WorkerRecord* worker = find_failed(cause))
    lines = worker->streams[static_cast<size_t>(WorkerStream::err)].tail().last_lines(kLastLines);
  if (std::string hint = hint_for(cause, lines); !hint.empty())
    text += fmt::format("Hint: {}{}\n", hint, hint.ends_with('?') ? "" : ".");
  text += note;
  if (!lines.empty()) text += fmt::format("The last lines of its stderr:\n    {}\n", joined(lines, "\n    "));
  return text;
}

}  // namespace hvd::launcher
