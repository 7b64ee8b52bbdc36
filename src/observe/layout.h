// What a rank writes about itself into memory that it shares with its launcher: counters, times, and a ring of its last
// operations. The launcher reads it without asking, also when the rank hangs or is dead. It consists of 64-bit words
// only, so that a reader can copy it while it is written. Version 1; a reader refuses every other.
// Thread rule: plain layout. `W` is a word in shared memory (atomic) or in a copy.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hvd::observe {

inline constexpr uint64_t kMagic = 0x4556524553424f48;  // "HOBSERVE"
inline constexpr uint64_t kVersion = 1;

inline constexpr size_t kKinds = 9;    // model/request.h
inline constexpr size_t kDTypes = 13;  // model/dtype.h
inline constexpr size_t kSets = 16;    // process sets; the last one counts for all after it
inline constexpr size_t kLinks = 64;   // ranks on other hosts; the last one counts for all after it
inline constexpr size_t kBuckets = 26;
inline constexpr size_t kRing = 2048;  // operations that are remembered
inline constexpr size_t kNameWords = 8;
inline constexpr size_t kNameBytes = kNameWords * 8;  // of longer names the end is kept
inline constexpr size_t kMissingWords = 64;           // ranks that a report can name: 64 each

enum class State : uint64_t { none, forming, running, failed, left };
inline constexpr State kLastState = State::left;

enum class Outcome : uint64_t { pending, done, failed };
inline constexpr Outcome kLastOutcome = Outcome::failed;

// Bucket i counts what took less than 2^(i+10) ns (1 us, 2 us, ..., 34 s), and not less than bucket i-1 allows; the
// last one the rest.
template <class W>
struct Histogram {
  W count, sum;  // sum in nanoseconds
  W buckets[kBuckets];
};

// One operation. It is being written while `number` is 0.
template <class W>
struct Entry {
  W number;                   // counted from 1
  W submitted, agreed, done;  // steady clock, nanoseconds; 0: not yet
  W bytes;                    // of the input
  W facts;                    // kind, dtype, outcome and fused tensors: see pack_facts()
  W process_set;
  W name_length;  // of the whole name
  W name[kNameWords];
};

template <class W>
struct Total {
  W count, bytes, failed;
};

template <class W>
struct Link {
  W peer;                                                  // its rank, plus one; 0: none
  W sent, received, retransmits, round_trip, connections;  // round_trip in microseconds
};

template <class W>
struct Layout {
  // The launcher writes these, once.
  W magic, version, size;

  // Who and where. In an elastic job they change.
  W state, pid, rank, world_size, local_rank, cross_rank, generation, worlds;
  W wall_offset;                   // to be added to steady times: nanoseconds since 1970
  W began;                         // steady clock: of this world
  W python_signal, native_signal;  // that make it write stacks; 0: not ready

  // Operations.
  Total<W> kinds[kKinds];
  Total<W> dtypes[kDTypes];
  Total<W> sets[kSets];
  Histogram<W> agreement;  // from submit until all ranks had submitted
  Histogram<W> execution;  // from there to the end
  W set_agreement[kSets];  // nanoseconds, as in `agreement`
  W submitted;             // operations: the number of the last entry of the ring
  W finished;              // operations
  W deepest;               // most operations in flight at a time
  W last_done;             // steady clock
  W plans, fused_tensors, fused_bytes, largest_plan;
  W carried;
  W cache_hits, cache_misses;
  W waits, wait_time;  // of threads in hvd_wait, nanoseconds
  W waiting_since;     // steady clock, of one that waits; 0: none does

  // Connections, failures and elastic jobs.
  W beats, last_beat;
  W commits, recovered;
  W stalls;  // reports
  W stall_time;
  W missing[kMissingWords];  // ranks that the last report names, one bit each
  Link<W> links[kLinks];

  Entry<W> ring[kRing];
};

using Word = std::atomic<uint64_t>;
static_assert(sizeof(Word) == sizeof(uint64_t) && Word::is_always_lock_free);
using Shared = Layout<Word>;
using Copy = Layout<uint64_t>;
static_assert(sizeof(Shared) == sizeof(Copy) && sizeof(Copy) % 8 == 0);

struct Facts {
  uint8_t kind = 0, dtype = 0;
  Outcome outcome = Outcome::pending;
  uint32_t fused = 0;  // tensors of its plan
};
constexpr uint64_t pack(const Facts& facts) {
  return uint64_t{facts.kind} | uint64_t{facts.dtype} << 8 | static_cast<uint64_t>(facts.outcome) << 16 |
         uint64_t{facts.fused} << 32;
}
constexpr Facts unpack_facts(uint64_t word) {
  return {.kind = static_cast<uint8_t>(word),
          .dtype = static_cast<uint8_t>(word >> 8),
          .outcome = static_cast<Outcome>(word >> 16 & 0xff),
          .fused = static_cast<uint32_t>(word >> 32)};
}

}  // namespace hvd::observe
