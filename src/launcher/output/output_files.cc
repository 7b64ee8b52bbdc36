#include "launcher/output/output_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <utility>

#include "base/bell.h"

namespace hvd::launcher {
namespace {

constexpr Duration kTimeToOpen = std::chrono::seconds(1);
constexpr Duration kTimeToEnd = std::chrono::seconds(1);  // for files that were closed a moment ago
constexpr size_t kLargestWrite = 1 << 20;                 // combines several appends

struct OpenFile {
  std::string path;
  UniqueFd fd;  // none: it has failed
};

std::string make_file(const std::string& path, UniqueFd& fd) {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::filesystem::create_directories(folder, error);
  if (error) return std::string(system_error("cannot create", folder.string(), error.value()).message());
  fd = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  return fd ? "" : std::string(system_error("cannot write output to", path).message());
}

std::string write_to(OpenFile& file, std::string_view bytes) {
  while (file.fd && !bytes.empty()) {
    ssize_t count = ::write(file.fd.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      std::string reason = ::strerror(errno);
      file.fd = UniqueFd();
      return fmt::format("can no longer write to {} ({}); continuing without it", file.path, reason);
    }
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return "";
}

}  // namespace

// Outlives this object if the thread hangs in the kernel.
struct OutputFiles::State {
  std::mutex mutex;  // guards the members below, except the bell
  std::condition_variable changed;
  std::deque<Task> tasks;
  size_t waiting = 0;                 // bytes, including those of the current task
  std::optional<TimePoint> since;     // start of the current task
  std::string path;                   // file of the current task
  std::map<int, std::string> opened;  // results that a caller waits for; empty text: success
  std::vector<std::string> news;
  bool is_ending = false;
  size_t room = 0;
  UniqueFd bell;
};

OutputFiles::OutputFiles(size_t room, Duration patience) : patience_(patience), state_(std::make_shared<State>()) {
  state_->room = room;
}

OutputFiles::~OutputFiles() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(state_->mutex);
  auto is_done = [&] { return state_->tasks.empty() && !state_->since; };
  bool has_ended = state_->changed.wait_for(lock, kTimeToEnd, is_done);
  state_->is_ending = true;
  state_->changed.notify_all();
  lock.unlock();
  if (!has_ended) thread_.detach();  // a thread that hangs in a file system ends only with the process
}

void OutputFiles::start() {
  if (thread_.joinable()) return;
  if (auto bell = create_bell(); bell.ok()) state_->bell = std::move(*bell);
  thread_ = std::jthread([state = state_] { write_all(state); });
}

void OutputFiles::write_all(const std::shared_ptr<State>& state) {
  std::map<int, OpenFile> files;
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return !state->tasks.empty() || state->is_ending; });
    if (state->is_ending) return;
    Task task = std::move(state->tasks.front());
    state->tasks.pop_front();
    OpenFile& file = files[task.file];
    if (task.kind == Task::Kind::open) file.path = task.text;
    state->since = Clock::now();
    state->path = file.path;
    lock.unlock();
    std::string problem;
    switch (task.kind) {
      case Task::Kind::open: problem = make_file(task.text, file.fd); break;
      case Task::Kind::write: problem = write_to(file, task.text); break;
      case Task::Kind::close: files.erase(task.file); break;
    }
    lock.lock();
    bool was_full = state->waiting > state->room;
    state->since.reset();
    if (task.kind == Task::Kind::write) state->waiting -= task.text.size();
    if (task.kind == Task::Kind::open && state->opened.contains(task.file)) {
      state->opened[task.file] = problem.empty() ? "ok" : problem;
    } else if (!problem.empty()) {
      state->news.push_back(std::move(problem));
    }
    state->changed.notify_all();
    bool has_room = was_full && state->waiting <= state->room;
    if (has_room || state->tasks.empty() || !state->news.empty()) ring(state->bell);
  }
}

void OutputFiles::put(Task task) {
  std::lock_guard lock(state_->mutex);
  if (task.kind == Task::Kind::write) state_->waiting += task.text.size();
  bool is_more = task.kind == Task::Kind::write && !state_->tasks.empty() && state_->tasks.back().file == task.file &&
                 state_->tasks.back().kind == Task::Kind::write && state_->tasks.back().text.size() < kLargestWrite;
  if (is_more) {
    state_->tasks.back().text += task.text;
  } else {
    state_->tasks.push_back(std::move(task));
  }
  state_->changed.notify_all();
}

Result<int> OutputFiles::open(const std::string& path) {
  start();
  int file = ++last_file_;
  {
    std::lock_guard lock(state_->mutex);
    state_->opened[file];
  }
  put({.kind = Task::Kind::open, .file = file, .text = path});
  std::unique_lock lock(state_->mutex);
  // If another file hangs, this one would, too.
  bool hangs = state_->since && Clock::now() - *state_->since > kTimeToOpen;
  auto is_answered = [&] { return !state_->opened[file].empty(); };
  if (!hangs) state_->changed.wait_for(lock, kTimeToOpen, is_answered);
  std::string answer = std::move(state_->opened[file]);
  state_->opened.erase(file);
  if (answer.empty() || answer == "ok") return file;
  return Status(Code::unknown, std::move(answer));
}

void OutputFiles::append(int file, std::string_view bytes) {
  if (!bytes.empty()) put({.kind = Task::Kind::write, .file = file, .text = std::string(bytes)});
}

void OutputFiles::close(int file) { put({.kind = Task::Kind::close, .file = file, .text = {}}); }

bool OutputFiles::is_full() const { return count_waiting() > state_->room; }

size_t OutputFiles::count_waiting() const {
  std::lock_guard lock(state_->mutex);
  return state_->waiting;
}

bool OutputFiles::is_empty() const {
  std::lock_guard lock(state_->mutex);
  return state_->tasks.empty() && !state_->since;
}

std::vector<std::string> OutputFiles::news() {
  if (state_->bell) silence(state_->bell);
  std::lock_guard lock(state_->mutex);
  std::vector<std::string> news = std::exchange(state_->news, {});
  bool hangs = state_->since && Clock::now() - *state_->since >= patience_;
  if (hangs && !std::exchange(is_said_, true)) {
    news.push_back(fmt::format(
        "{} has taken no output for {:.0f} s; what is meant for files waits, and workers that write more than {} MiB "
        "are held back until it does",
        state_->path, seconds_of(patience_), state_->room >> 20));
  }
  if (is_said_ && !state_->since && state_->tasks.empty()) {
    is_said_ = false;
    news.push_back("all output has been written to its files");
  }
  return news;
}

void OutputFiles::add_to(PollSet& set) {
  if (!state_->bell) return;
  set.add(state_->bell.get(), POLLIN, [] {});
  std::lock_guard lock(state_->mutex);
  if (state_->since && !is_said_) set.wake_at(*state_->since + patience_);
}

}  // namespace hvd::launcher
