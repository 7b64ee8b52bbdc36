#include "team.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <type_traits>

namespace bench {
namespace {

constexpr double kPatience = 120;  // seconds; a rank that waits longer has lost its peers
constexpr int kPings = 1500;       // measured after as many to warm up

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

std::vector<int> usable_cpus() {
  std::vector<int> cpus;
  if (const char* list = std::getenv("BENCH_CPUS")) {
    std::stringstream stream(list);
    for (std::string cpu; std::getline(stream, cpu, ',');) cpus.push_back(std::stoi(cpu));
    return cpus;
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) fail("cannot read the affinity");
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void bind(pid_t thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(thread, sizeof set, &set) != 0) fail("cannot bind to core " + std::to_string(cpu));
}

}  // namespace

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void fail(const std::string& message) {
  std::fprintf(stderr, "%s%s%s\n", message.c_str(), errno ? ": " : "", errno ? std::strerror(errno) : "");
  std::fflush(nullptr);
  _exit(1);
}

bool launched() { return std::getenv("HOROVOD_RANK") != nullptr; }

Team::Team(int rank, int size) : rank_(rank), size_(size), cpus_(usable_cpus()) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a launcher that is stopped leaves nothing behind
  const char* path = std::getenv("BENCH_BLOCK");
  if (!path) fail("BENCH_BLOCK is not set: use run.py, or name a new empty file");
  if (size > kMaxRanks) fail("too many ranks");
  int fd = open(path, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Block)) != 0) fail(std::string("cannot make ") + path);
  void* memory = mmap(nullptr, sizeof(Block), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) fail(std::string("cannot map ") + path);
  close(fd);
  block_ = static_cast<Block*>(memory);  // zeros are valid atomics and counters
  errno = 0;
  if (block_->joined.value.fetch_add(1) >= static_cast<uint64_t>(size)) fail(std::string(path) + " was used before");
}

void Team::pin() const {
  const char* wanted = std::getenv("BENCH_PIN");
  if (!wanted || std::strcmp(wanted, "1") != 0 || crowded()) return;
  DIR* tasks = opendir("/proc/self/task");
  if (!tasks) fail("cannot list the threads");
  while (const dirent* entry = readdir(tasks)) {
    if (entry->d_name[0] != '.') bind(std::atoi(entry->d_name), cpus_[static_cast<size_t>(rank_) % cpus_.size()]);
  }
  closedir(tasks);
}

void Team::wait_for(const std::atomic<uint64_t>& counter, uint64_t value, bool nap) const {
  double deadline = 0;
  for (uint64_t turn = 1; counter.load(std::memory_order_acquire) < value; turn++) {
    if (nap) {
      usleep(100);
    } else if (crowded() || turn % 1024 == 0) {
      sched_yield();
    } else {
      relax();
    }
    if (turn % 1024 != 0) continue;
    if (deadline == 0) deadline = now() + kPatience;
    errno = 0;
    if (now() > deadline) fail("rank " + std::to_string(rank_) + " waits in vain for the other ranks");
  }
}

void Team::barrier() {
  barriers_++;
  block_->arrived.value.fetch_add(1, std::memory_order_acq_rel);
  wait_for(block_->arrived.value, barriers_ * static_cast<uint64_t>(size_));
}

double Team::share(double value) {
  if (rank_ == 0) block_->numbers[0] = value;
  barrier();
  value = block_->numbers[0];
  barrier();
  return value;
}

double Team::largest(double value) {
  block_->numbers[rank_] = value;
  barrier();
  value = *std::max_element(block_->numbers, block_->numbers + size_);
  barrier();
  return value;
}

double Team::probe() {
  if (size_ < 2 || cpus_.size() < 2) return 0;
  probes_++;
  if (rank_ > 1) {  // asleep: the cores belong to ranks 0 and 1 now
    wait_for(block_->probed.value, probes_, true);
    return block_->probe_ns;
  }
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  bind(0, cpus_[static_cast<size_t>(rank_)]);
  auto wait_here = [](const std::atomic<uint64_t>& line, uint64_t value) {
    while (line.load(std::memory_order_acquire) < value) relax();
  };
  // Both must have arrived on their cores, else a bare spin could wait for a rank that does not run.
  wait_for(rank_ == 0 ? block_->pong.value : block_->ping.value, pings_);
  double start = 0;
  for (int i = 0; i < 2 * kPings; i++) {
    if (i == kPings) start = now();
    pings_++;
    if (rank_ == 0) {
      block_->ping.value.store(pings_, std::memory_order_release);
      wait_here(block_->pong.value, pings_);
    } else {
      wait_here(block_->ping.value, pings_);
      block_->pong.value.store(pings_, std::memory_order_release);
    }
  }
  double ns = (now() - start) / kPings / 2 * 1e9;
  sched_setaffinity(0, sizeof before, &before);
  if (rank_ == 0) {
    block_->probe_ns = ns;
    block_->probed.value.store(probes_, std::memory_order_release);
  }
  wait_for(block_->probed.value, probes_);
  return block_->probe_ns;
}

int run_forked(int np, void (*body)(void* context, int rank), void* context) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < np; rank++) {
    pid_t child = fork();
    if (child < 0) fail("cannot fork");
    if (child == 0) {
      body(context, rank);
      std::fflush(nullptr);
      _exit(0);
    }
    children.push_back(child);
  }
  int result = 0;
  for (size_t left = children.size(); left > 0; left--) {
    int status = 0;
    pid_t ended = wait(&status);
    std::erase(children, ended);
    if (status == 0 || result != 0) continue;
    result = 1;
    for (pid_t child : children) kill(child, SIGKILL);
  }
  return result;
}

}  // namespace bench
