// The memory object shared by the ranks of one host, and its layout. The control part is mapped once; the staging
// memory of each process set (Channel) is a range of the same object, mapped when the set is added. The object is a
// memfd: it has no name, no size limit of /dev/shm applies, and it disappears with its last process.
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

inline constexpr size_t kLine = 64;       // size of a cache line
inline constexpr size_t kLinePair = 128;  // prefetchers fetch two lines: flags of different writers keep this distance
inline constexpr size_t kMaxLocalRanks = 128;
inline constexpr size_t kUpLines = 512;     // lines for messages from each rank to the root
inline constexpr size_t kDownLines = 4096;  // from the root to all

enum class Activity : uint32_t {
  driving,  // a thread of the process polls shared memory: needs no bell
  idle,     // no thread polls; the engine thread sleeps and needs a bell for control messages
  paused,   // like idle, but a user thread has just left and is likely to return before a bell would help
  blocked,  // asleep inside a wait: needs a bell for everything
};

struct alignas(kLinePair) Flag {
  std::atomic<uint64_t> value{0};
};

// Written by the rank it belongs to, except `attention`.
struct RankBlock {
  alignas(kLinePair) std::atomic<Activity> activity{Activity::idle};
  // Set by a peer that left or fell asleep while this rank was driving and had not read its message: check once more
  // before leaving.
  alignas(kLinePair) std::atomic<uint32_t> attention{0};
  Flag down_read;  // lines read from the down ring so far
  Flag beats;      // increases while the process runs; in worlds that span hosts
  alignas(kLinePair) MessageLine up_ring[kUpLines];
};

// An encoded Origin is never longer than this.
inline constexpr size_t kLongestOrigin = 2 * kLongestOriginName + kLongestOriginText + 64;

struct ControlBlock {
  // The first failure; 0: none, 1: being written, 2: the fields below are valid.
  alignas(kLinePair) std::atomic<uint32_t> failed{0};
  int32_t failure_code = 0;
  uint32_t failure_origin_size = 0;
  char failure_text[4096] = {};                          // large enough for a list of all addresses that were tried
  std::byte failure_origin[kLongestOrigin] = {};         // encoded
  alignas(kLinePair) std::atomic<uint32_t> blocked{0};   // how many ranks are Activity::blocked
  Flag up_read[kMaxLocalRanks];                          // lines the root has taken from each rank
  alignas(kLinePair) MessageLine down_ring[kDownLines];  // written by the root
  RankBlock ranks[1];                                    // actually one per rank

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

// Creates a memory object of that size with all its pages allocated. If a limit of the process or its container is too
// low, the error says what to change.
Result<UniqueFd> create_shared_memory(size_t bytes);
// Makes sure that [offset, offset + bytes) exists and maps it. Forked children do not inherit the mapping.
Result<Mapping> map_shared_memory(const UniqueFd& memory, size_t offset, size_t bytes);
// Returns the pages of a range to the system.
void discard_shared_memory(const UniqueFd& memory, size_t offset, size_t bytes);

}  // namespace hvd
