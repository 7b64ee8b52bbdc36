#include "launcher/workers/crew.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <utility>

#include "launcher/workers/environment.h"

namespace hvd::launcher {
namespace {

constexpr size_t kReadSize = 64 << 10;
constexpr Duration kStacksPoll = std::chrono::milliseconds(20);  // between looks at stacks that are being written
constexpr WorkerStream kStreams[] = {WorkerStream::out, WorkerStream::err};

bool is_directory(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// The line "oom_kill N" of a file, or -1.
int64_t read_kills(const std::string& path) {
  std::ifstream file(path);
  std::string name;
  int64_t value = 0;
  while (file >> name >> value)
    if (name == "oom_kill") return value;
  return -1;
}

// Version 2 of control groups has one tree, version 1 one per controller; a machine may have both.
int64_t count_kills() {
  std::ifstream groups("/proc/self/cgroup");
  int64_t kills = -1;
  for (std::string line; std::getline(groups, line);) {  // "number:controllers:/path"
    size_t controllers = line.find(':') + 1, path = line.find(':', controllers) + 1;
    if (controllers == 0 || path == 0) continue;
    std::string names = line.substr(controllers, path - controllers - 1), group = line.substr(path);
    int64_t found = -1;
    if (names.empty()) found = read_kills("/sys/fs/cgroup" + group + "/memory.events");
    if (("," + names + ",").find(",memory,") != std::string::npos) {
      found = read_kills("/sys/fs/cgroup/memory" + group + "/memory.oom_control");
      if (found < 0) found = read_kills("/sys/fs/cgroup/memory/memory.oom_control");  // in a container
    }
    if (found >= 0) kills = found;
  }
  return kills >= 0 ? kills : read_kills("/sys/fs/cgroup/memory.events");
}

}  // namespace

void Crew::set_work(const Work& work) {
  work_ = work;
  binding_ = Binding(work.bind_to);
  serve_metrics();
  if (work_.directory.empty() || is_directory(work_.directory)) return;
  std::array<char, 4096> own{};
  const char* here = ::getcwd(own.data(), own.size());
  events_.on_notice(fmt::format("there is no directory {}; the workers start in {}", work_.directory,
                                here ? here : "the one they are given"));
  work_.directory.clear();
}

void Crew::start(const Start& start) {
  auto pipe = make_report_pipe();    // optional: without it the worker cannot report its end, but still runs
  auto view = WorkerView::create();  // without it nobody sees what it does
  Variables report{{kReportVariable, pipe.ok() ? name_report_pipe(pipe->write.get()) : ""},
                   {observe::kObserveVariable, view.ok() ? view->variable() : ""}};
  Program program{
      .command = work_.command,
      .environment = merged_environment(work_.defaults, environ, {&work_.variables, &start.variables, &report}),
      .directory = work_.directory,
      .cpus = binding_.cpus_of(start.local_rank, start.local_size),
      .kept = view.ok() ? view->kept() : std::vector<int>{}};
  if (pipe.ok()) program.kept.push_back(pipe->write.get());
  auto child = spawn(program);
  if (!child.ok()) return events_.on_not_started(start.worker, child.status().message());
  Member& worker = workers_.emplace_back();
  worker.id = start.worker;
  worker.pid = child->pid;
  worker.streams[0] = std::move(child->out);
  worker.streams[1] = std::move(child->err);
  if (pipe.ok()) worker.report = std::move(pipe->read);
  if (view.ok()) worker.view = std::move(*view);
  is_empty_ = false;
  events_.on_started(start.worker, child->pid);
}

void Crew::stop(int id) {
  for (Member& worker : workers_) {
    if (worker.id != id) continue;
    if (worker.has_ended) {
      kill_leftovers_of(worker);
      worker.is_forgotten = true;
      continue;
    }
    worker.sent = SIGTERM;
    worker.kill_at = Clock::now() + kGrace;
    for (pid_t pid : descendants({}, worker.pid)) worker.doomed.insert(pid);
    worker.doomed.insert(worker.pid);
    for (pid_t pid : worker.doomed) ::kill(pid, SIGTERM);
  }
}

// Kills processes of its group that it left behind. Only those below us: the group's number may have been reused.
void Crew::kill_leftovers_of(const Member& worker) const {
  for (pid_t pid : descendants(strangers_))
    if (::getpgid(pid) == worker.pid) ::kill(pid, SIGKILL);
}

void Crew::stop() {
  if (phase_ != Phase::running) return;
  phase_ = Phase::stopping;
  kill_at_ = Clock::now() + kGrace;
  signal_all(SIGTERM);
  look_again_ = true;
}

void Crew::kill() {
  phase_ = Phase::killing;
  kill_at_ = kNever;
  signal_all(SIGKILL);
  look_again_ = true;
}

// Signals whole groups, so that a process that is just forking another cannot save it from the signal.
void Crew::signal_all(int signal) {
  std::set<pid_t> groups;
  for (Member& worker : workers_) {
    if (worker.has_ended) continue;
    worker.sent = signal;
    groups.insert(worker.pid);
  }
  for (pid_t pid : descendants(strangers_))
    if (!groups.contains(::getpgid(pid))) ::kill(pid, signal);
  for (pid_t group : groups) ::kill(-group, signal);
}

void Crew::add_to(PollSet& set) {
  if (metrics_) metrics_->add_to(set);
  if (!looking_.empty()) set.wake_at(Clock::now() + kStacksPoll);
  set.wake_at(look_again_ ? Clock::now() : next_kill());
  for (Member& worker : workers_) {
    if (worker.report) set.add(worker.report.get(), POLLIN, [this, &worker] { read_report(worker); });
    for (WorkerStream stream : kStreams) {
      const UniqueFd& fd = worker.streams[static_cast<size_t>(stream)];
      if (fd && !held_[static_cast<size_t>(stream)])
        set.add(fd.get(), POLLIN, [this, &worker, stream] { read(worker, stream); });
    }
  }
}

void Crew::look() {
  answer_observers();
  kill_due();
  std::erase_if(workers_, [](const Member& worker) {
    return worker.is_forgotten && !worker.streams[0] && !worker.streams[1] && worker.kill_at == kNever;
  });
  if (!std::exchange(look_again_, false) || phase_ == Phase::running) return;
  if (phase_ == Phase::killing) signal_all(SIGKILL);  // processes forked during the kill
  look_for_leftovers();
}

TimePoint Crew::next_kill() const {
  TimePoint next = kill_at_;
  for (const Member& worker : workers_) next = std::min(next, worker.kill_at);
  return next;
}

void Crew::kill_due() {
  TimePoint now = Clock::now();
  if (kill_at_ <= now) kill();
  for (Member& worker : workers_) {
    if (worker.kill_at > now) continue;
    worker.kill_at = kNever;
    worker.sent = SIGKILL;
    std::vector<pid_t> living = descendants(strangers_);  // a pid of the list may have been reused
    for (pid_t pid : living)
      if (worker.doomed.contains(pid)) ::kill(pid, SIGKILL);
  }
}

void Crew::on_reaped(pid_t pid, int status) {
  look_again_ = true;
  auto worker = std::find_if(workers_.begin(), workers_.end(),
                             [&](const Member& one) { return one.pid == pid && !one.has_ended; });
  if (worker == workers_.end()) return;
  worker->has_ended = true;
  read_report(*worker);
  worker->report = UniqueFd();
  Ended ended{.ending = ending_of(status)};
  int number = ended.ending.number;
  // If a signal that we did not send killed it, it died on its own just before ours arrived.
  ended.was_stopped = worker->sent != 0 && (!ended.ending.signalled || number == SIGTERM || number == worker->sent);
  if (ended.ending.signalled && number == SIGKILL && !ended.was_stopped) ended.out_of_memory = memory_.has_killed();
  events_.on_ended(worker->id, ended);
}

// Kills processes that the workers have left behind: they would hold the terminal, ports and memory.
void Crew::look_for_leftovers() {
  if (is_empty_) return;
  if (std::any_of(workers_.begin(), workers_.end(), [](const Member& worker) { return !worker.has_ended; })) return;
  if (!descendants(strangers_).empty()) return;
  is_empty_ = true;
  for (Member& worker : workers_)  // no process below us can write any more: read the pipes to the end and close them
    for (WorkerStream stream : kStreams)
      while (worker.streams[static_cast<size_t>(stream)]) read(worker, stream);
  events_.on_empty();
}

void Crew::read_report(Member& worker) {
  std::array<char, kReadSize> buffer;
  ssize_t count = worker.report ? ::read(worker.report.get(), buffer.data(), buffer.size()) : 0;
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (count <= 0) {
    worker.report = UniqueFd();
    return;
  }
  worker.reported.append(buffer.data(), static_cast<size_t>(count));
  while (auto report = take_report(worker.reported)) events_.on_report(worker.id, *report);
}

void Crew::read(Member& worker, WorkerStream stream) {
  UniqueFd& fd = worker.streams[static_cast<size_t>(stream)];
  if (!fd) return;  // it has ended in the meantime
  std::array<char, kReadSize> buffer;
  ssize_t count = ::read(fd.get(), buffer.data(), buffer.size());
  if (count < 0 && errno == EINTR) return;
  if (count < 0 && errno == EAGAIN && !is_empty_) return;
  if (count > 0) return events_.on_output(worker.id, stream, {buffer.data(), static_cast<size_t>(count)});
  fd = UniqueFd();
  events_.on_output_end(worker.id, stream);
}

MemoryEvents::MemoryEvents() : kills_(count_kills()) {}

bool MemoryEvents::has_killed() {
  int64_t now = count_kills();
  return now > std::exchange(kills_, now) && now > 0;
}

}  // namespace hvd::launcher
