// The turn to drive: at most one thread has it. Other waiting threads sleep until their operation is done or the turn
// is free; the engine thread parks while a driver sleeps in its place.
//
// Taking the turn and giving it back need no lock. A thread that is about to sleep announces it first (`waiting_`,
// `parked_`), then checks the turn; the thread that gives it back frees it first, then checks for sleepers. At least
// one of the two sees the other, because there is a fence between the steps of each. Waking takes the mutex, so that it
// cannot fall between a sleeper's check and its sleep. Thread rule: any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/clock.h"

namespace hvd {

class Turn {
 public:
  bool is_taken() const { return taken_.load(std::memory_order_seq_cst); }
  bool try_take() {
    bool taken = false;
    return !is_taken() && taken_.compare_exchange_strong(taken, true, std::memory_order_seq_cst);
  }
  // `waits`: the owner of the turn is one of the waiting threads.
  void give_back(bool waits) {
    taken_.store(false, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (parked_.load(std::memory_order_seq_cst) || waiting() > (waits ? 1 : 0)) wake();
  }

  // Threads that wait for an operation, including the driver.
  int32_t waiting() const { return waiting_.load(std::memory_order_seq_cst); }
  void begin_waiting() { waiting_.fetch_add(1, std::memory_order_seq_cst); }
  void end_waiting() { waiting_.fetch_sub(1, std::memory_order_relaxed); }

  // Between begin_waiting() and end_waiting(): sleeps until the turn is free or done(), or `until`; may return early.
  template <class Done>
  void sleep(Done&& done, TimePoint until) {
    std::unique_lock lock(mutex_);
    if (!is_taken() || done()) return;
    if (until == kNever) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, until);
    }
  }
  // The engine thread: sleeps until the turn is free or stopped().
  template <class Stopped>
  void park(Stopped&& stopped) {
    std::unique_lock lock(mutex_);
    parked_.store(true, std::memory_order_seq_cst);
    changed_.wait(lock, [&] { return stopped() || !is_taken(); });
    parked_.store(false, std::memory_order_relaxed);
  }
  // Call when the turn is free, an operation is done, or the engine stops.
  void wake() {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

 private:
  std::atomic<bool> taken_{false};
  std::atomic<int32_t> waiting_{0};
  std::atomic<bool> parked_{false};
  std::mutex mutex_;  // guards only the moment between a check and the sleep
  std::condition_variable changed_;
};

}  // namespace hvd
