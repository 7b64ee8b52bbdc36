#include "launcher/job/job.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

namespace hvd::launcher {
namespace {

constexpr size_t kLastLines = 20;
constexpr size_t kMostFailures = 64;                        // of one generation; the oldest are dropped
constexpr Duration kEndPatience = std::chrono::seconds(5);  // from the end of a worker's line to the end of its process
constexpr WorkerStream kEveryStream[] = {WorkerStream::out, WorkerStream::err};

elastic::WorkerId id_of(int worker) { return elastic::WorkerId{static_cast<uint64_t>(worker)}; }

}  // namespace

Job::Job(const Parts& parts, std::vector<Host> hosts, std::vector<Contact> contacts)
    : options_(parts.options),
      is_elastic_(!parts.settings.is_static),
      lines_(parts.lines),
      screen_(parts.screen),
      signals_(parts.signals),
      began_(Clock::now()),
      fleet_(*this, parts.options, parts.meeting, parts.screen, parts.muster, parts.directory, std::move(contacts)),
      driver_(parts.settings, began_),
      hosts_(hosts) {
  if (options_.host_discovery_script.empty()) {
    hear_of(std::move(hosts));
  } else {
    discovery_.emplace(options_.host_discovery_script,
                       elastic::DiscoverySettings{.default_slots = options_.slots_per_host.value_or(1)});
  }
}

int Job::run() {
  if (Status status = is_elastic_ ? Status() : add_static_workers(); !status.ok()) {
    screen_.say(status.message());
    happened_.push_front(elastic::StopJob{.reason = std::string(status.message())});
  } else {
    start_observing();
  }
  while (!driver_.finished() || is_gathering()) step();
  if (discovery_) discovery_->stop();
  stop_all();  // processes that workers have left behind
  while (!fleet_.is_empty()) step();
  fleet_.leave();
  while (!fleet_.has_left()) step();
  if (has_failed()) {
    FailedJob failed = explain();
    if (observatory_) failed.dump = observatory_->dump_note();
    if (failed.cause) tell_caller(*failed.cause);
    screen_.show(WorkerStream::err, summary_of(failed));
  }
  flush_at_end(screen_, signals_, set_, stop_signal_ != 0);
  return exit_code();
}

void Job::start_observing() {
  auto settings = observatory_settings(options_);
  if (!settings) return;
  auto ask = [this](const ObserveRequest& request) { return fleet_.observe(request); };
  observatory_.emplace(std::move(*settings), ask, [this](std::string_view text) { screen_.say(text); });
  observatory_->open();
}

bool Job::is_gathering() const { return observatory_ && observatory_->is_gathering(); }

void Job::step() {
  decide();
  show_progress();
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
  if (signals_.take_dump_signal() && observatory_) observatory_->dump_now();
  signals_.reap([&](pid_t pid, int status) {
    fleet_.on_reaped(pid, status);
    if (discovery_) discovery_->on_reaped(pid, status);
  });
  lines_.look(*this);
  fleet_.look();
  if (observatory_) observatory_->look();
  if (is_to_stop_ && !is_gathering()) stop_now();
  look_at_discovery();
  stop_lost();
  if (driver_.next_timer() <= Clock::now()) happened_.push_back(elastic::Timer{});
  decide();
  forget_ended();
}

void Job::decide() {
  while (!happened_.empty() && !driver_.finished()) {
    elastic::Event event = std::move(happened_.front());
    happened_.pop_front();
    std::vector<elastic::Action> actions;
    driver_.on(event, Clock::now(), actions);
    for (const elastic::Action& action : actions) std::visit([this](const auto& known) { act(known); }, action);
  }
}

void Job::show_progress() {
  std::string status;
  if (!is_elastic_ && !is_stopping_ && started_ < workers_.size())
    status = fmt::format("starting: {} hosts, {} of {} ranks up", hosts_.size(), started_, workers_.size());
  if (is_elastic_ && !driver_.waiting_for().empty()) status = "waiting for " + driver_.waiting_for();
  screen_.set_status(status.empty() ? "" : "horovodrun: " + status);
}

void Job::on_stop_signal(int signal) {
  bool is_second = stop_signal_ != 0 || (!is_elastic_ && is_stopping_);
  if (is_second) return fleet_.kill_all();  // the second signal: do not wait
  stop_signal_ = signal;
  size_t count = count_running();
  std::string workers = is_elastic_ ? fmt::format("{} worker{}", count, count == 1 ? "" : "s") : ranks_text(count);
  screen_.say(fmt::format("got {}, stopping {}", signal_name(signal), workers));
  happened_.push_back(elastic::StopJob{.reason = "got " + signal_name(signal), .exit_code = 128 + signal});
}

void Job::look_at_discovery() {
  if (!discovery_) return;
  DiscoveryScript::News news = discovery_->look();
  for (const elastic::Say& said : news.said) act(said);
  for (const elastic::HostsDiscovered& found : news.hosts) {
    std::vector<Host> hosts;
    for (const elastic::HostSlots& host : found.hosts) hosts.push_back({.name = host.name, .slots = host.slots});
    hear_of(std::move(hosts));
  }
  if (news.status.ok()) return;
  failure_ = news.status.message();
  happened_.push_back(elastic::StopJob{.reason = failure_, .exit_code = 1});
}

void Job::hear_of(std::vector<Host> hosts) {
  hosts_ = std::move(hosts);
  elastic::HostsDiscovered event;
  std::set<std::string> names;
  int total = 0;
  for (const Host& host : hosts_) {
    event.hosts.push_back({host.name, host.slots});
    names.insert(host.name);
    total += host.slots;
  }
  auto slots = assign(hosts_, std::min(total, options_.max_num_proc.value_or(total)));
  slots_ = slots.ok() ? std::move(*slots) : std::vector<Slot>();
  fleet_.set_listed(std::move(names));
  happened_.push_back(std::move(event));
}

// ---- events of workers ----

Job::WorkerRecord* Job::find(int id) {
  auto found = workers_.find(id);
  return found == workers_.end() ? nullptr : &found->second;
}

std::string Job::name_of(const WorkerRecord& worker) {
  return worker.rank < 0 ? fmt::format("worker {}", worker.id) : fmt::format("rank {}", worker.rank);
}

size_t Job::count_running() const {
  auto runs = [](const auto& entry) { return !entry.second.is_over && entry.second.pid > 0; };
  return static_cast<size_t>(std::count_if(workers_.begin(), workers_.end(), runs));
}

void Job::on_started(int worker, pid_t pid) {
  WorkerRecord* one = find(worker);
  if (one == nullptr) return;
  one->pid = pid;
  started_++;
  if (observatory_) observatory_->on_started(worker, one->host, pid);
  if (!options_.verbose) return;
  screen_.say(is_elastic_ ? fmt::format("worker {} is pid {}", worker, pid)
                          : fmt::format("rank {} on {} is pid {}", worker, one->host, pid));
}

void Job::on_not_started(int worker, std::string_view reason) {
  WorkerRecord* one = find(worker);
  if (one == nullptr || std::exchange(one->is_over, true)) return;
  end_outputs(*one);
  note({.kind = Failure::Kind::not_started,
        .who = name_of(*one),
        .host = one->host,
        .rank = one->rank,
        .reason = std::string(reason)});
  happened_.push_back(elastic::StartFailed{.id = id_of(worker), .reason = std::string(reason)});
}

void Job::on_output(int worker, WorkerStream stream, std::string_view bytes) {
  WorkerRecord* one = find(worker);
  if (one == nullptr) return;
  one->streams[static_cast<size_t>(stream)].take(bytes, screen_);
  if (observatory_) observatory_->on_output(worker, bytes);
}

void Job::on_output_end(int worker, WorkerStream stream) {
  if (WorkerRecord* one = find(worker)) one->streams[static_cast<size_t>(stream)].end(screen_);
}

void Job::end_outputs(WorkerRecord& worker) {
  for (RankOutput& stream : worker.streams) stream.end(screen_);
}

void Job::on_report(int worker, const EndReport& report) {
  WorkerRecord* one = find(worker);
  if (one == nullptr || one->report) return;
  one->report = report;
  if (report.rank < 0) {  // it failed before it knew its rank
    one->report->rank = one->rank;
    if (report.origin.rank < 0) one->report->origin.rank = one->rank;
  }
  happened_.push_back(elastic::WorkerReported{.id = id_of(worker), .awaited = awaited_rank(*one->report)});
}

void Job::on_ended(int worker, const Ended& ended) {
  WorkerRecord* one = find(worker);
  if (one == nullptr || std::exchange(one->is_over, true)) return;
  const Ending& ending = ended.ending;
  one->ending = ending;
  one->stop_at = kNever;
  if (observatory_) observatory_->on_ended(worker, describe(ending));
  lines_.close(worker);
  if (is_elastic_) fleet_.stop(worker);  // processes that it left behind; in a static job, others may still use them
  if (ending.code() != 0) {
    std::string words = own_words(one->report);
    leave_world(*one, words.empty() ? fmt::format("rank {} ended ({})", one->rank, describe(ending))
                                    : fmt::format("rank {} {}", one->rank, words));
  }
  if (ended.was_stopped) {
    // A host that stops without being told to ends a static job, whatever its workers' exit codes are.
    if (!is_elastic_ && !is_stopping_)
      note({.kind = Failure::Kind::host_lost, .host = one->host, .reason = fleet_.last_notice(one->host)});
  } else if (ending.code() != 0) {
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
                                            .signal = ending.signalled ? ending.number : 0,
                                            .was_stopped = ended.was_stopped});
}

void Job::on_observed(const std::string& host, uint64_t id, std::string_view json) {
  if (observatory_) observatory_->on_observed(host, id, json);
}

void Job::on_host_lost(const std::string& host, std::string_view reason, bool is_cause) {
  if (observatory_) observatory_->on_host_lost(host);
  for (auto& [id, worker] : workers_) {
    if (worker.host != host) continue;
    end_outputs(worker);
    if (std::exchange(worker.is_over, true)) continue;
    worker.stop_at = kNever;
    lines_.close(id);
    leave_world(worker, fmt::format("host {} is lost", host));
  }
  note({.kind = is_cause ? Failure::Kind::host_lost : Failure::Kind::host_stuck,
        .host = host,
        .reason = std::string(reason)});
  happened_.push_back(elastic::HostLost{.host = host, .reason = std::string(reason)});
}

// ---- messages from workers ----

void Job::on_ready(int worker, const WorkerReady& ready) {
  WorkerRecord* one = find(worker);
  if (one == nullptr || one->is_over) return;
  elastic::WorkerReady event{.id = id_of(worker)};
  if (ready.lost_rank >= 0 && one->member_of == ready.last) event.lost_rank = ready.lost_rank;
  leave_world(*one, fmt::format("rank {} came back{}{}", one->rank, ready.reason.empty() ? "" : ": ", ready.reason));
  happened_.push_back(event);
}

void Job::on_leaving(int worker, const WorkerLeaves& leaves) {
  WorkerRecord* one = find(worker);
  if (one != nullptr && !one->is_over)
    happened_.push_back(elastic::WorkerLeaving{.id = id_of(worker), .reason = leaves.reason});
}

// Usually the process ends in a moment. If it does not, it cannot be reached and must be stopped.
void Job::on_line_lost(int worker, std::string_view) {
  WorkerRecord* one = find(worker);
  if (one != nullptr && !one->is_over) one->stop_at = Clock::now() + kEndPatience;
}

void Job::stop_lost() {
  for (auto& [id, worker] : workers_) {
    if (worker.stop_at > Clock::now()) continue;
    worker.stop_at = kNever;
    screen_.say(fmt::format("worker {} on {} has lost its connection to this launcher: stopping it", id, worker.host));
    fleet_.stop(id);
  }
}

// Tells workers that are still joining the same world not to wait for this one.
void Job::leave_world(WorkerRecord& worker, const std::string& reason) {
  Generation left = std::exchange(worker.member_of, Generation{0});
  if (left != generation_ || left == Generation{0} || std::exchange(is_void_, true)) return;
  for (const auto& [id, other] : workers_)
    if (!other.is_over && other.member_of == left) lines_.send(id, WorldVoid{.generation = left, .reason = reason});
}

// ---- the end ----

// After a failure, once: the ranks have to be seen while they are still there.
void Job::gather() {
  if (!observatory_ || !has_failed() || std::exchange(has_gathered_, true)) return;
  observatory_->gather(failures_.empty() ? failure_ : describe(find_cause(failures_), began_));
}

void Job::stop_all() {
  gather();
  is_to_stop_ = true;
  if (!is_gathering()) stop_now();
}

void Job::stop_now() {
  is_to_stop_ = false;
  if (std::exchange(is_stopping_, true)) return;
  stopped_ = count_running();
  fleet_.stop_all();
}

// After an elastic job has failed, further failures are only consequences. In a static job the cause may be reported
// last; but failures after the user's signal are ignored.
void Job::note(Failure failure) {
  if (is_elastic_ ? !failure_.empty() : stop_signal_ != 0) return;
  failure.when = Clock::now();
  if (is_elastic_ && failures_.size() == kMostFailures) failures_.erase(failures_.begin());
  failures_.push_back(std::move(failure));
}

// Workers that fail before they join can do so for days in one generation. Records of ended workers are kept only for
// the last lines of a worker that failed, or that others have lost and that was stopped before it failed. Called when
// the driver has handled all of them. A static job keeps all records for its summary.
void Job::forget_ended() {
  if (!is_elastic_) return;
  std::erase_if(workers_, [&](const auto& entry) {
    const WorkerRecord& worker = entry.second;
    if (!worker.is_over || !worker.streams[0].has_ended() || !worker.streams[1].has_ended()) return false;
    return std::none_of(failures_.begin(), failures_.end(), [&](const Failure& failure) {
      bool is_lost = failure.is_consequence() && failure.report->origin.pid == worker.pid;
      return failure.pid > 0 && (failure.pid == worker.pid || is_lost);
    });
  });
}

bool Job::has_failed() const { return is_elastic_ ? !failure_.empty() && stop_signal_ == 0 : !failures_.empty(); }

int Job::exit_code() const {
  if (is_elastic_ && stop_signal_ != 0) return 128 + stop_signal_;
  return !is_elastic_ && has_failed() ? 1 : exit_code_;  // a host may have been lost after its workers were done
}

const Job::WorkerRecord* Job::find_failed(const Failure& failure) const {
  if (failure.pid <= 0) return nullptr;
  const WorkerRecord* found = nullptr;
  for (const auto& [id, worker] : workers_)
    if (worker.pid == failure.pid || (found == nullptr && worker.rank == failure.rank)) found = &worker;
  return found;
}

FailedJob Job::explain() const {
  FailedJob failed{.reason = is_elastic_ ? failure_ : "", .hosts = hosts_.size(), .began = began_};
  if (failures_.empty()) return failed;
  failed.cause = find_cause(failures_);
  if (const WorkerRecord* worker = find_failed(*failed.cause))
    failed.last_lines = worker->streams[static_cast<size_t>(WorkerStream::err)].tail().last_lines(kLastLines);
  if (is_elastic_) {
    for (const Failure& failure : failures_)
      if (failure.is_consequence()) failed.after.push_back({.rank = failure.rank, .report = failure.report});
    return failed;
  }
  failed.stopped = stopped_;
  failed.was_silent = failed.last_lines.empty() && failed.cause->pid > 0;
  for (const auto& [id, worker] : workers_)
    if (worker.ending && worker.ending->code() != 0)
      failed.after.push_back({.rank = worker.rank, .report = worker.report, .ending = worker.ending});
  return failed;
}

}  // namespace hvd::launcher
