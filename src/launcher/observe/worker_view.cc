#include "launcher/observe/worker_view.h"

#include <dirent.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <memory>

namespace hvd::launcher {
namespace {

constexpr Duration kStacksPatience = std::chrono::milliseconds(1500);
constexpr Duration kStacksQuiet = std::chrono::milliseconds(60);  // nothing was written for so long
constexpr size_t kLongestStacks = 256 << 10;
constexpr int kMostThreads = 64;
constexpr int kDeepest = 32;  // processes between the one that was started and the rank

std::string status_field(pid_t pid, std::string_view name) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') continue;
    size_t begin = line.find_first_not_of(" \t", name.size() + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return {};
}

// A signal that the process does not catch would kill it.
bool catches(pid_t pid, uint64_t signal) {
  if (signal < 1 || signal > 64) return false;
  std::string text = status_field(pid, "SigCgt");
  uint64_t mask = 0;
  std::from_chars(text.data(), text.data() + text.size(), mask, 16);
  return (mask >> (signal - 1) & 1) != 0;
}

pid_t parent_of(pid_t pid) {
  std::string text = status_field(pid, "PPid");
  pid_t parent = 0;
  std::from_chars(text.data(), text.data() + text.size(), parent);
  return parent;
}

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> threads;
  std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(fmt::format("/proc/{}/task", pid).c_str()), ::closedir);
  while (dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    std::string_view name = entry->d_name;
    pid_t thread = 0;
    std::from_chars(name.data(), name.data() + name.size(), thread);
    if (thread > 0 && threads.size() < kMostThreads) threads.push_back(thread);
  }
  return threads;
}

}  // namespace

Result<WorkerView> WorkerView::create() {
  auto descriptors = observe::make_descriptors();
  if (!descriptors.ok()) return descriptors.status();
  auto memory = observe::Memory::map(descriptors->memory.get());
  if (!memory.ok()) return memory.status();
  return WorkerView(std::move(*descriptors), std::move(*memory));
}

bool WorkerView::has_content() const { return memory_->worlds.load(std::memory_order_relaxed) > 0; }

nlohmann::json WorkerView::metrics() const {
  auto copy = std::make_unique<observe::Copy>();
  observe::copy_counters(*memory_, *copy);
  return observe::metrics_of(*copy);
}

std::vector<observe::Remembered> WorkerView::operations(size_t most) const {
  return observe::read_ring(*memory_, most);
}

nlohmann::json WorkerView::shown(const observe::Remembered& operation) const {
  return observe::operation_json(operation, static_cast<int64_t>(memory_->wall_offset.load(std::memory_order_relaxed)));
}

pid_t WorkerView::process_of(pid_t started) const {
  auto process = static_cast<pid_t>(memory_->pid.load(std::memory_order_relaxed));
  pid_t above = process;
  for (int i = 0; i < kDeepest && above > 1 && above != started; i++) above = parent_of(above);
  return above == started ? process : started;
}

void WorkerView::ask_for_stacks(pid_t started) {
  pid_t pid = process_of(started);
  int file = descriptors_.stacks.get();
  (void)!::ftruncate(file, 0);
  ::lseek(file, 0, SEEK_SET);  // the worker shares this position
  asked_ = grew_ = Clock::now();
  size_ = 0;
  asked_pid_ = pid;
  is_native_ = false;
  uint64_t python = memory_->python_signal.load(std::memory_order_relaxed);
  if (catches(pid, python)) {
    ::syscall(SYS_tgkill, pid, pid, static_cast<int>(python));
  } else {
    ask_for_native();
  }
}

void WorkerView::ask_for_native() {
  is_native_ = true;
  asked_ = grew_ = Clock::now();
  uint64_t native = memory_->native_signal.load(std::memory_order_relaxed);
  if (!catches(asked_pid_, native)) {
    asked_ -= kStacksPatience;  // there is nothing to wait for
    return;
  }
  for (pid_t thread : threads_of(asked_pid_)) ::syscall(SYS_tgkill, asked_pid_, thread, static_cast<int>(native));
}

bool WorkerView::stacks_settled(TimePoint now) {
  struct stat status {};
  size_t size = ::fstat(descriptors_.stacks.get(), &status) == 0 ? static_cast<size_t>(status.st_size) : 0;
  if (size != size_) {
    size_ = size;
    grew_ = now;
  }
  bool is_settled = now >= asked_ + kStacksPatience || (size_ > 0 && now >= grew_ + kStacksQuiet);
  if (!is_settled || is_native_) return is_settled;
  ask_for_native();
  return false;
}

std::string WorkerView::stacks() const {
  std::string text(std::min(size_, kLongestStacks), '\0');
  ssize_t count = ::pread(descriptors_.stacks.get(), text.data(), text.size(), 0);
  text.resize(count < 0 ? 0 : static_cast<size_t>(count));
  return text;
}

std::string process_state(pid_t pid) {
  std::string state = status_field(pid, "State");
  switch (state.empty() ? 'X' : state[0]) {
    case 'R': return "running";
    case 'S': return "sleeping";
    case 'D': return "waiting for a device";
    case 'T':
    case 't': return "stopped";
    case 'Z':
    case 'X': return "ended";
  }
  return state;
}

}  // namespace hvd::launcher
