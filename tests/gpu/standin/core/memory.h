// Device and pinned host memory. Device addresses lie in a range without access rights; the bytes are a second mapping
// of the same memfd, which only the stand-in uses, so a host access faults and the handler names the allocation.
// Thread rule: core().mutex is held, unless noted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/history.h"
#include "core/visible.h"

namespace standin {

struct Allocation {
  uint64_t number;  // counts the allocations of the process
  uint64_t address;
  size_t bytes;
  int gpu;  // -1: pinned host memory
  Stack stack;
  History history;
  SitePointer freed;   // set once it is; the address is never used again
  int registered = 0;  // with NCCL
};

inline constexpr int kHost = -1;

// Returns null when the GPU has no memory left.
std::shared_ptr<Allocation> allocate(int gpu, size_t bytes, const Stack& stack);
// Ends an allocation; reports accesses that are not ordered before that.
void release(Allocation& allocation, const SitePointer& site);
size_t bytes_in_use(int gpu);

// The allocation, live or freed, that has this address in it; null if none has.
STANDIN_VISIBLE std::shared_ptr<Allocation> find_allocation(uint64_t address);
// Likewise, where [address, address + bytes) is inside it.
STANDIN_VISIBLE std::shared_ptr<Allocation> find_range(uint64_t address, size_t bytes);

// Where the bytes of a device or pinned address are. Any thread.
STANDIN_VISIBLE char* bytes_at(uint64_t address);

// Checks and notes an access of a piece of work: inside a live allocation, and ordered after the accesses before it.
// False, after a report and with the sticky error set, when there is no such memory.
STANDIN_VISIBLE bool note_access(const SitePointer& site, uint64_t address, size_t bytes, bool writes);

STANDIN_VISIBLE std::string to_text(const Allocation& allocation);

}  // namespace standin
