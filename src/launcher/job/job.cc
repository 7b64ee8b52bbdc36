#include "launcher/job/job.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/joined.h"
#include "launcher/output/screen.h"
#include "launcher/workers/environment.h"

namespace hvd::launcher {
namespace {

constexpr size_t kSummaryLines = 20;
constexpr Duration kCausePatience = std::chrono::seconds(5);  // from the first failure to the end of its cause
constexpr WorkerStream kBoth[] = {WorkerStream::out, WorkerStream::err};

}  // namespace

// ---- what hosts report ----

void Job::HostState::on_started(int rank, pid_t pid) {
  RankRecord* worker = job.find(*this, rank);
  if (worker == nullptr) return;
  worker->pid = pid;
  job.started_++;
  if (job.observatory_) job.observatory_->on_started(rank, name, pid);
  if (job.options_.verbose) job.screen_.say(fmt::format("rank {} on {} is pid {}", rank, name, pid));
}

void Job::HostState::on_not_started(int rank, std::string_view reason) {
  RankRecord* worker = job.find(*this, rank);
  if (worker == nullptr) return;
  worker->is_over = true;
  for (RankOutput& stream : worker->streams) stream.end(job.screen_);
  job.fail({.kind = Failure::Kind::not_started, .host = name, .rank = rank, .reason = std::string(reason)});
}

void Job::HostState::on_output(int rank, WorkerStream stream, std::string_view bytes) {
  RankRecord* worker = job.find(*this, rank);
  if (worker == nullptr) return;
  worker->streams[static_cast<size_t>(stream)].take(bytes, job.screen_);
  if (job.observatory_) job.observatory_->on_output(rank, bytes);
}

void Job::HostState::on_output_end(int rank, WorkerStream stream) {
  if (RankRecord* worker = job.find(*this, rank)) worker->streams[static_cast<size_t>(stream)].end(job.screen_);
}

void Job::HostState::on_report(int rank, const EndReport& report) {
  RankRecord* worker = job.find(*this, rank);
  if (worker == nullptr || worker->report) return;
  worker->report = report;
  if (report.rank >= 0) return;
  worker->report->rank = rank;  // it failed before it knew
  if (report.origin.rank < 0) worker->report->origin.rank = rank;
}

void Job::HostState::on_ended(int rank, const Ended& ended) {
  RankRecord* worker = job.find(*this, rank);
  if (worker == nullptr || worker->is_over) return;
  worker->is_over = true;
  worker->ended = ended;
  if (job.observatory_) job.observatory_->on_ended(rank, describe(ended.ending));
  if (ended.was_stopped) return on_own_stop();
  if (ended.ending.code() == 0) return;
  job.fail({.kind = ended.ending.signalled ? Failure::Kind::signal : Failure::Kind::exit,
            .host = name,
            .rank = rank,
            .pid = worker->pid,
            .ended = ended,
            .report = worker->report});
}

void Job::HostState::on_notice(std::string_view text) {
  notice = text;
  job.screen_.say(fmt::format("{}: {}", name, text));
}

// A host that stops without being told to ends the job, whatever its workers return.
void Job::HostState::on_own_stop() {
  if (!job.is_stopping_) job.fail({.kind = Failure::Kind::host_lost, .host = name, .reason = notice});
}

void Job::HostState::on_empty() {
  is_empty = true;
  on_own_stop();
}

void Job::HostState::on_lost(std::string_view reason, bool is_cause) {
  bool had_workers = false;
  for (RankRecord& worker : job.workers_) {
    if (worker.host != this) continue;
    had_workers = had_workers || !worker.is_over;
    worker.is_over = true;
    for (RankOutput& stream : worker.streams) stream.end(job.screen_);
  }
  if (job.observatory_) job.observatory_->on_host_lost(name);
  Failure::Kind kind = is_cause ? Failure::Kind::host_lost : Failure::Kind::host_stuck;
  if (had_workers || !is_empty || !job.is_stopping_)
    job.fail({.kind = kind, .host = name, .reason = std::string(reason)});
  is_empty = true;
}

// ---- the job ----

void Job::add_host(const std::string& name, const std::vector<Slot>& slots, Work work,
                   const std::function<std::unique_ptr<HostRunner>(HostEvents&)>& make_runner) {
  HostState& host = hosts_.emplace_back(*this, name);
  host.work = std::move(work);
  host.runner = make_runner(host);
  for (const Slot& slot : slots)
    if (slot.host == name) slots_.emplace_back(slot, &host);
}

Job::RankRecord* Job::find(const HostState& host, int rank) {
  if (rank < 0 || rank >= static_cast<int>(workers_.size())) return nullptr;
  RankRecord& worker = workers_[static_cast<size_t>(rank)];
  return worker.host == &host ? &worker : nullptr;
}

int Job::run() {
  std::sort(slots_.begin(), slots_.end(),
            [](const auto& one, const auto& other) { return one.first.rank < other.first.rank; });
  if (Status status = open_outputs(); status.ok()) {
    start_observing();
    start_all();
  } else {
    screen_.say(status.message());
    failures_.push_back({.kind = Failure::Kind::not_started, .when = Clock::now()});
    stop();
  }
  while (!all_hosts_empty() || (observatory_ && observatory_->is_gathering())) step();
  leave();
  bool has_started = !workers_.empty();
  if (!failures_.empty() && has_started) {
    tell_caller(find_cause(failures_));
    screen_.show(WorkerStream::err, summary());
  }
  flush_at_end(screen_, signals_, set_, stop_signal_ != 0);
  if (!failures_.empty()) return 1;
  return stop_signal_ ? 128 + stop_signal_ : 0;
}

Status Job::open_outputs() {
  std::vector<RankRecord> workers;
  for (const auto& [slot, host] : slots_) {
    auto out = RankOutput::open(options_, slot, WorkerStream::out, screen_);
    if (!out.ok()) return out.status();
    auto err = RankOutput::open(options_, slot, WorkerStream::err, screen_);
    if (!err.ok()) return err.status();
    workers.push_back({.slot = slot, .host = host, .streams = {std::move(*out), std::move(*err)}});
  }
  workers_ = std::move(workers);
  return {};
}

void Job::start_all() {
  for (HostState& host : hosts_) host.runner->set_work(host.work);
  for (RankRecord& worker : workers_) {
    if (is_stopping_) {  // one could not be started
      worker.is_over = true;
      for (RankOutput& stream : worker.streams) stream.end(screen_);
      continue;
    }
    worker.host->runner->start({.worker = worker.slot.rank,
                                .local_rank = worker.slot.local_rank,
                                .local_size = worker.slot.local_size,
                                .variables = rank_variables(worker.slot)});
  }
}

void Job::start_observing() {
  auto settings = observatory_settings(options_);
  if (!settings) return;
  auto ask = [this](const ObserveRequest& request) {
    std::vector<std::string> asked;
    for (HostState& host : hosts_) {
      if (host.is_empty) continue;
      asked.push_back(host.name);
      host.runner->observe(request);
    }
    return asked;
  };
  observatory_.emplace(std::move(*settings), ask, [this](std::string_view text) { screen_.say(text); });
  observatory_->open();
}

void Job::step() {
  show_progress();
  for (HostState& host : hosts_) {
    for (WorkerStream stream : kBoth) host.runner->hold_output(stream, screen_.is_full(stream));
    host.runner->add_to(set_);
  }
  if (observatory_) observatory_->add_to(set_);
  screen_.add_to(set_);
  signals_.add_to(set_);
  if (!is_stopping_) set_.wake_at(stop_by_);
  set_.wait();
  screen_.flush();
  for (int signal : signals_.take_stop_signals()) on_stop_signal(signal);
  signals_.reap([&](pid_t pid, int status) {
    for (HostState& host : hosts_) host.runner->on_reaped(pid, status);
  });
  for (HostState& host : hosts_) host.runner->look();
  if (observatory_) observatory_->look();
  bool is_failing = !failures_.empty() && (!awaits_cause() || Clock::now() >= stop_by_);
  if (is_failing && !is_stopping_ && observatory_ && !std::exchange(has_gathered_, true))
    observatory_->gather(describe(find_cause(failures_), began_));
  if (observatory_ && observatory_->is_gathering() && !all_workers_over()) return;
  if (!is_stopping_ && (is_failing || all_workers_over())) stop();  // the others, and what they have left behind
}

void Job::show_progress() {
  bool is_starting = started_ < workers_.size() && !is_stopping_;
  screen_.set_status(is_starting ? fmt::format("horovodrun: starting: {} hosts, {} of {} ranks up", hosts_.size(),
                                               started_, workers_.size())
                                 : "");
}

void Job::on_stop_signal(int signal) {
  if (is_stopping_) {  // the user is in a hurry
    for (HostState& host : hosts_)
      if (!host.is_empty) host.runner->kill();
    return;
  }
  stop_signal_ = signal;
  stop();
  screen_.say(fmt::format("got {}, stopping {}", signal_name(signal), ranks_text(stopped_)));
}

void Job::fail(Failure failure) {
  failure.when = Clock::now();
  if (stop_signal_ != 0) return;  // the user's doing
  failures_.push_back(std::move(failure));
  stop_by_ = std::min(stop_by_, Clock::now() + kCausePatience);
  if (failures_.back().kind == Failure::Kind::not_started && !is_stopping_) stop();
}

// Whether a rank is about to end that others name as the cause, or that has said itself that it failed: stopped now, it
// would end by our signal. Those that have not ended yet may have reported already. A second rank that fails by itself
// changes nothing.
bool Job::awaits_cause() const {
  return std::any_of(workers_.begin(), workers_.end(), [&](const RankRecord& worker) {
    int rank = worker.report ? awaited_rank(*worker.report) : -1;
    return rank >= 0 && rank < static_cast<int>(workers_.size()) && !workers_[static_cast<size_t>(rank)].is_over;
  });
}

void Job::stop() {
  is_stopping_ = true;
  for (const RankRecord& worker : workers_) stopped_ += !worker.is_over && worker.pid > 0;
  for (HostState& host : hosts_)
    if (!host.is_empty) host.runner->stop();
}

bool Job::all_workers_over() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const RankRecord& worker) { return worker.is_over; });
}

bool Job::all_hosts_empty() const {
  return std::all_of(hosts_.begin(), hosts_.end(), [](const HostState& host) { return host.is_empty; });
}

// Agents are let go together, and awaited, so that nothing of the job is left when we return.
void Job::leave() {
  for (HostState& host : hosts_)
    if (!host.runner->has_left()) host.runner->leave();
  auto has_left = [](const HostState& host) { return host.runner->has_left(); };
  while (!std::all_of(hosts_.begin(), hosts_.end(), has_left)) step();
}

std::string Job::summary() const {
  const Failure cause = find_cause(failures_);
  // On one host all would fail alike, and the rank is of no interest.
  if (cause.kind == Failure::Kind::not_started && hosts_.size() == 1)
    return fmt::format("horovodrun: {}\n", cause.reason);
  std::string text = "horovodrun: " + describe(cause, began_);
  std::vector<std::string_view> lines;
  if (cause.pid > 0 && cause.rank >= 0 && cause.rank < static_cast<int>(workers_.size()))
    lines = workers_[static_cast<size_t>(cause.rank)].streams[static_cast<size_t>(WorkerStream::err)].tail().last_lines(
        kSummaryLines);
  if (stopped_ > 0) text += fmt::format("; the job was stopped with {} still running", ranks_text(stopped_));
  text += "\n";
  if (std::string words = own_words(cause.report); !words.empty() && cause.kind != Failure::Kind::told)
    text += fmt::format("It {}\n", words);
  if (std::string hint = hint_for(cause, lines); !hint.empty())
    text += fmt::format("Hint: {}{}\n", hint, hint.ends_with('?') ? "" : ".");
  text += consequences(cause);
  if (std::string note = observatory_ ? observatory_->dump_note() : ""; !note.empty())
    text += fmt::format("{}\n", note);
  if (cause.pid <= 0) return text;
  if (lines.empty()) return text + "It wrote nothing to stderr.\n";
  return text + fmt::format("The last lines of its stderr:\n    {}\n", joined(lines, "\n    "));
}

std::string Job::consequences(const Failure& cause) const {
  std::vector<Aftermath> after;
  for (const RankRecord& worker : workers_)
    if (worker.ended && worker.ended->ending.code() != 0)
      after.push_back({.rank = worker.slot.rank, .report = worker.report, .ending = worker.ended->ending});
  return describe(after, cause);
}

}  // namespace hvd::launcher
