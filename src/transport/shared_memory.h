// What the ranks of one host share: one memory object and how it is laid out. The control part is mapped once; the
// staging memory of each process set (Channel) is a range of the same object, mapped when the set appears.
// The object is a memfd: it has no name, no size limit of /dev/shm applies, and it is gone with its last process.
// Thread rule: plain layout; each field says which rank writes it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/status.h"
#include "transport/line_ring.h"

namespace hvd {

inline constexpr size_t kLine = 64;       // what cores exchange
inline constexpr size_t kLinePair = 128;  // prefetchers fetch two: flags of different writers keep that distance
inline constexpr size_t kMaxLocalRanks = 128;
inline constexpr size_t kUpLines = 512;     // of messages: each rank to the root
inline constexpr size_t kDownLines = 4096;  // the root to all

enum class Activity : uint32_t {
  driving,  // a thread of the process looks at shared memory all the time: needs no bell
  idle,     // no thread looks; the engine thread sleeps and needs a bell for control messages
  paused,   // like idle, but a user thread has just left and is likely to be back before a bell would help
  blocked,  // asleep inside a wait: needs a bell for anything
};

struct alignas(kLinePair) Flag {
  std::atomic<uint64_t> value{0};
};

// Written by the rank it belongs to, except `attention`.
struct RankBlock {
  alignas(kLinePair) std::atomic<Activity> activity{Activity::idle};
  // Set by a peer that left or fell asleep while this rank was driving and had not read its message: look once more
  // before leaving.
  alignas(kLinePair) std::atomic<uint32_t> attention{0};
  Flag down_read;  // lines ever taken from the down ring
  Flag beats;      // grows as long as the process runs; in worlds that span hosts
  alignas(kLinePair) MessageLine up_ring[kUpLines];
};

// An encoded Origin is never longer.
inline constexpr size_t kLongestOrigin = 2 * kLongestOriginName + kLongestOriginText + 64;

struct ControlBlock {
  // The first failure; 0: none, 1: being written, 2: the fields below are valid.
  alignas(kLinePair) std::atomic<uint32_t> failed{0};
  int32_t failure_code = 0;
  uint32_t failure_origin_size = 0;
  char failure_text[4096] = {};                          // room for the list of all addresses that were tried
  std::byte failure_origin[kLongestOrigin] = {};         // encoded
  alignas(kLinePair) std::atomic<uint32_t> blocked{0};   // how many ranks are Activity::blocked
  Flag up_read[kMaxLocalRanks];                          // lines the root has taken from each rank
  alignas(kLinePair) MessageLine down_ring[kDownLines];  // written by the root
  RankBlock ranks[1];                                    // really one per rank

  static size_t bytes(int32_t ranks) {
    return sizeof(ControlBlock) + static_cast<size_t>(ranks - 1) * sizeof(RankBlock);
  }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<Activity>::is_always_lock_free);

// Owner of one mapping.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, size_t size) : data_(data), size_(size) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Mapping();
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Makes a memory object of that size with all its pages present. Fails with what to change when a limit of the
// process or its container is in the way.
Result<UniqueFd> create_shared_memory(size_t bytes);
// Makes sure that [offset, offset + bytes) exists and maps it. Forked children do not inherit the mapping.
Result<Mapping> map_shared_memory(const UniqueFd& memory, size_t offset, size_t bytes);
// Gives the pages of a range back to the system.
void discard_shared_memory(const UniqueFd& memory, size_t offset, size_t bytes);

}  // namespace hvd
