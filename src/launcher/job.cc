#include "launcher/job.h"

#include <fmt/core.h>
#include <sched.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "base/joined.h"

namespace hvd {
namespace {

constexpr Duration kGrace = std::chrono::seconds(5);  // from SIGTERM to SIGKILL
constexpr size_t kReadSize = 64 << 10;
constexpr size_t kSummaryLines = 20;

int usable_cores() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int milliseconds_until(TimePoint when) {
  if (when == kNever) return -1;
  auto left = std::chrono::ceil<std::chrono::milliseconds>(when - Clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

std::string signal_name(int signal) { return fmt::format("SIG{}", ::sigabbrev_np(signal)); }

std::string ranks_text(size_t count) { return count == 1 ? "1 rank" : fmt::format("{} ranks", count); }

}  // namespace

Job::Job(const Options& options, const std::vector<Slot>& slots, Meeting meeting, UniqueFd signals)
    : options_(options),
      slots_(slots),
      meeting_(std::move(meeting)),
      signals_(std::move(signals)),
      out_(Console::from_inherited(STDOUT_FILENO)),
      err_(&out_) {
  if (!same_file(STDOUT_FILENO, STDERR_FILENO)) err_ = &own_err_.emplace(Console::from_inherited(STDERR_FILENO));
}

int Job::run() {
  for (const Slot& slot : slots_) {
    Status status = start(slot, worker_environment(environ, options_.variables, slot, meeting_, usable_cores()));
    if (status.ok()) continue;
    say(status.message());
    start_failed_ = true;
    stop();
    break;
  }
  look_for_leftovers();  // when not even the first worker could be started
  while (!over()) step();
  if (first_failed_) err_->append(summary());
  flush_consoles();
  if (first_failed_ || start_failed_) return 1;
  return stop_signal_ ? 128 + stop_signal_ : 0;
}

Status Job::start(const Slot& slot, const std::vector<std::string>& environment) {
  auto out_file = open_file(slot, "stdout");
  if (!out_file.ok()) return out_file.status();
  auto err_file = open_file(slot, "stderr");
  if (!err_file.ok()) return err_file.status();
  auto child = spawn(options_.command, environment);
  if (!child.ok()) return child.status();
  bool timestamp = options_.prefix_timestamp;
  workers_.push_back({slot, child->pid,
                      Stream{std::move(child->out), {slot.rank, "stdout", timestamp}, &out_, std::move(*out_file), {}},
                      Stream{std::move(child->err), {slot.rank, "stderr", timestamp}, err_, std::move(*err_file), {}},
                      std::nullopt});
  if (options_.verbose) say(fmt::format("rank {} on {} is pid {}", slot.rank, slot.host, child->pid));
  return {};
}

Result<std::optional<Console>> Job::open_file(const Slot& slot, std::string_view stream) const {
  if (options_.output_filename.empty()) return std::optional<Console>();
  size_t digits = std::to_string(slot.size - 1).size();
  std::filesystem::path folder = options_.output_filename;
  folder /= fmt::format("rank.{:0{}}", slot.rank, digits);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return system_error("cannot create", folder.string(), error.value());
  auto file = Console::to_file(folder / stream);
  if (!file.ok()) return file.status();
  return std::optional(std::move(*file));
}

bool Job::over() const {
  return leftovers_gone_ && std::all_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
           return worker.ending && !worker.out.fd && !worker.err.fd;
         });
}

void Job::step() {
  std::vector<Stream*> streams;
  poll_.assign(1, {signals_.get(), POLLIN, 0});
  for (Worker& worker : workers_)
    for (Stream* stream : {&worker.out, &worker.err})
      if (stream->fd && !stream->console->full()) {
        poll_.push_back({stream->fd.get(), POLLIN, 0});
        streams.push_back(stream);
      }
  for (Console* console : {&out_, err_})
    if (!console->empty()) poll_.push_back({console->fd(), POLLOUT, 0});
  if (::poll(poll_.data(), poll_.size(), milliseconds_until(kill_at_)) < 0 && errno != EINTR) return;

  for (size_t i = 0; i < streams.size(); ++i)
    if (poll_[i + 1].revents != 0) read_stream(*streams[i]);
  out_.flush();
  err_->flush();
  if (poll_[0].revents != 0) read_signals();
  if (phase_ == Phase::stopping && Clock::now() >= kill_at_) kill_everything();
}

void Job::read_signals() {
  signalfd_siginfo info{};
  bool children = false;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) {
      children = true;
    } else {
      on_stop_signal(static_cast<int>(info.ssi_signo));
    }
  }
  if (children) reap();
}

void Job::on_stop_signal(int signal) {
  if (phase_ != Phase::running) {  // the user is in a hurry
    kill_everything();
    return;
  }
  stop_signal_ = signal;
  stop();
  say(fmt::format("got {}, stopping {}", signal_name(signal), ranks_text(stopped_)));
}

void Job::reap() {
  int status = 0;
  while (pid_t pid = ::waitpid(-1, &status, WNOHANG)) {
    if (pid < 0) break;
    auto worker = std::find_if(workers_.begin(), workers_.end(), [&](const Worker& one) { return one.pid == pid; });
    if (worker != workers_.end() && !worker->ending) on_ending(*worker, ending_of(status));
  }
  if (phase_ == Phase::killing) kill_everything();  // what was forked while we were killing
  look_for_leftovers();
}

void Job::on_ending(Worker& worker, Ending ending) {
  worker.ending = ending;
  if (ending.code() == 0 || phase_ != Phase::running) return;
  first_failed_ = &worker;
  stop();
}

void Job::stop() {
  phase_ = Phase::stopping;
  kill_at_ = Clock::now() + kGrace;
  std::set<pid_t> groups;
  for (const Worker& worker : workers_)
    if (!worker.ending) groups.insert(worker.pid);
  stopped_ = groups.size();
  for (pid_t pid : descendants())
    if (!groups.contains(::getpgid(pid))) ::kill(pid, SIGTERM);
  for (pid_t group : groups) ::kill(-group, SIGTERM);
}

void Job::kill_everything() {
  phase_ = Phase::killing;
  kill_at_ = kNever;
  for (pid_t pid : descendants()) ::kill(pid, SIGKILL);
}

// After the workers, whatever they started has to go too: it would hold the terminal, ports and memory.
void Job::look_for_leftovers() {
  if (!std::all_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.ending; })) return;
  if (!descendants().empty()) {
    if (phase_ == Phase::running) stop();
    return;
  }
  leftovers_gone_ = true;
  for (Worker& worker : workers_)  // nobody below us can write any more: take what is in the pipes and close them
    for (Stream* stream : {&worker.out, &worker.err}) {
      while (stream->fd) read_stream(*stream);
    }
}

void Job::read_stream(Stream& stream) {
  std::array<char, kReadSize> buffer;
  ssize_t count = ::read(stream.fd.get(), buffer.data(), buffer.size());
  if (count < 0 && errno == EINTR) return;
  if (count < 0 && errno == EAGAIN && !leftovers_gone_) return;
  if (count <= 0) stream.fd = UniqueFd();
  forward(stream, {buffer.data(), static_cast<size_t>(std::max<ssize_t>(0, count))}, count <= 0);
}

void Job::forward(Stream& stream, std::string_view bytes, bool last) {
  std::string lines;
  stream.prefixer.feed(bytes, lines);
  if (last) stream.prefixer.finish(lines);
  stream.tail.feed(bytes);
  stream.console->append(lines);
  if (!stream.file) return;
  stream.file->append(lines);
  stream.file->flush();
  if (!stream.file->lost()) return;
  say(fmt::format("cannot write to {} any more; going on without", options_.output_filename));
  stream.file.reset();
}

std::string Job::summary() const {
  const Worker& worker = *first_failed_;
  std::string text = fmt::format("horovodrun: rank {} on {} failed: pid {}, {}", worker.slot.rank, worker.slot.host,
                                 worker.pid, describe(*worker.ending));
  if (stopped_ > 0) text += fmt::format("; the job was stopped with {} still running", ranks_text(stopped_));
  text += "\n";
  std::vector<std::string_view> lines = worker.err.tail.last_lines(kSummaryLines);
  if (lines.empty()) return text + "It wrote nothing to stderr.\n";
  return text + fmt::format("The last lines of its stderr:\n    {}\n", joined(lines, "\n    "));
}

// The readers of our output take the time they need, but not after the user asked us to stop.
void Job::flush_consoles() {
  TimePoint give_up = stop_signal_ ? Clock::now() + kGrace : kNever;
  while (true) {
    poll_.assign(1, {signals_.get(), POLLIN, 0});
    for (Console* console : {&out_, err_}) {
      console->flush();
      if (!console->empty()) poll_.push_back({console->fd(), POLLOUT, 0});
    }
    if (poll_.size() == 1 || Clock::now() >= give_up) return;
    ::poll(poll_.data(), poll_.size(), milliseconds_until(give_up));
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == sizeof info)
      if (info.ssi_signo != SIGCHLD) give_up = Clock::now();
  }
}

}  // namespace hvd
