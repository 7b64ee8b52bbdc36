// The worker's side: writes what happens into the layout. A call costs a few dozen nanoseconds and never waits.
// Thread rule: one caller at a time for each part, as said there; readers may read all the time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "model/operation.h"
#include "observe/layout.h"
#include "observe/memory.h"
#include "observe/stopwatch.h"

namespace hvd::observe {

// What the writer has to know of an operation until it is done.
struct Record {
  uint64_t number = 0;  // in the ring; 0: it was not written
  int64_t submitted = 0, agreed = 0;
};

struct Place {
  int32_t rank = 0, world_size = 1, local_rank = 0, cross_rank = 0;
  uint64_t generation = 0;
};

struct LinkFacts {
  int32_t peer = -1;
  uint64_t sent = 0, received = 0, retransmits = 0, round_trip = 0, connections = 0;
};

class Writer {
 public:
  explicit Writer(Memory memory);

  const Shared& memory() const { return *memory_; }

  // ---- the process; one caller at a time ----
  void set_state(State state) { memory_->state.store(static_cast<uint64_t>(state), std::memory_order_relaxed); }
  void enter_world(const Place& place);
  void set_signals(int python, int native);  // negative: leave it as it is

  // ---- operations; the caller holds the lock of its table ----
  Record on_submit(const Operation& operation, size_t in_flight);
  struct Agreed {
    int64_t when = 0;
    uint32_t tensors = 0;  // of the plan
  };
  Agreed on_plan(size_t tensors);
  void on_agreed(const Agreed& agreed, Record& record, const Operation& operation);
  void on_done(const Record& record, const Operation& operation, bool is_ok, int64_t when);

  // ---- the driving thread ----
  void on_carried() { add(memory_->carried); }
  void on_announce(bool is_cached) { add(is_cached ? memory_->cache_hits : memory_->cache_misses); }
  void on_stall(const std::vector<int32_t>& missing);

  // ---- waiting threads; any number ----
  int64_t begin_wait();
  void end_wait(int64_t since);

  // ---- the watch; one caller ----
  void on_beat();
  void set_links(const std::vector<LinkFacts>& links);

  // ---- any thread ----
  int64_t now() const { return stopwatch_.now(); }
  void count_commit() { memory_->commits.fetch_add(1, std::memory_order_relaxed); }
  void count_recovery() { memory_->recovered.fetch_add(1, std::memory_order_relaxed); }

 private:
  // For words with one writer at a time.
  static void add(Word& word, uint64_t value = 1) {
    word.store(word.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
  }
  static void add(Histogram<Word>& histogram, int64_t nanoseconds);

  Memory memory_;
  Stopwatch stopwatch_;
};

// A thread waits as long as this exists.
class Wait {
 public:
  explicit Wait(Writer& writer) : writer_(writer), since_(writer.begin_wait()) {}
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  ~Wait() { writer_.end_wait(since_); }

 private:
  Writer& writer_;
  int64_t since_;
};

// The place of a duration in a histogram.
size_t bucket_of(uint64_t nanoseconds);

}  // namespace hvd::observe
