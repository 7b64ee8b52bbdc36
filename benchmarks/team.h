// The processes of one measuring run and what they share beside the library under test: a barrier, a few numbers, and
// the placement probe. All of it lives in a small file that every rank maps, so that each library, ours and the peers,
// is driven and timed by the same code.
// On a virtual machine the cores float over those of the host, and the same program changes its speed up to tenfold;
// the probe measures how far apart they are now: the one-way latency of a cache line between the first two cores.
// Thread rule: one thread of each process; every rank makes the same calls in the same order.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace bench {

inline constexpr int kMaxRanks = 64;

double now();  // seconds, monotonic
[[noreturn]] void fail(const std::string& message);

// Runs body(rank) in np child processes and returns when all have ended. The exit code is 0 if every rank's was; after
// the first failure the others are killed.
template <class Body>
int fork_ranks(int np, Body&& body);

// Whether another program starts the ranks, on this host or on several, and sets HOROVOD_RANK for each.
bool launched();

// fork_ranks, or the one rank that this process was launched as.
template <class Body>
int run_ranks(int np, Body&& body);

class Team {
 public:
  // Maps BENCH_BLOCK, an empty file that is new for each run. BENCH_CPUS lists the cores to use; BENCH_PIN=1 asks for
  // one core per rank where there are enough.
  Team(int rank, int size);

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool crowded() const { return static_cast<size_t>(size_) > cpus_.size(); }  // more ranks than cores

  void pin() const;  // every thread that the process has now
  void barrier();
  double share(double value);    // rank 0's value
  double largest(double value);  // of all ranks
  double probe();                // ns, the same on every rank; 0 when there are not two cores

 private:
  struct alignas(128) Line {
    std::atomic<uint64_t> value;
  };
  struct Block {
    Line joined, arrived, ping, pong, probed;
    double probe_ns;
    double numbers[kMaxRanks];
  };
  void wait_for(const std::atomic<uint64_t>& counter, uint64_t value, bool nap = false) const;

  int rank_, size_;
  std::vector<int> cpus_;
  Block* block_;
  uint64_t barriers_ = 0, probes_ = 0, pings_ = 0;
};

int run_forked(int np, void (*body)(void* context, int rank), void* context);

template <class Body>
int fork_ranks(int np, Body&& body) {
  return run_forked(
      np, [](void* context, int rank) { (*static_cast<std::remove_reference_t<Body>*>(context))(rank); }, &body);
}

template <class Body>
int run_ranks(int np, Body&& body) {
  if (!launched()) return fork_ranks(np, body);
  body(std::atoi(std::getenv("HOROVOD_RANK")));
  return 0;
}

}  // namespace bench
