#include "core/counts.h"

#include <algorithm>
#include <cstring>

#include "core/memory.h"

namespace standin {
namespace {

union Cells {
  Counts counts;
  uint64_t cells[sizeof(Counts) / sizeof(uint64_t)];
};
Cells all{};

}  // namespace

void count(uint64_t Counts::*field) { std::atomic_ref(all.counts.*field).fetch_add(1, std::memory_order_relaxed); }

}  // namespace standin

using namespace standin;

void hvd_standin_counts(Counts* counts, uint64_t bytes) {
  Counts copy{};
  for (size_t i = 0; i < std::size(all.cells); ++i)
    reinterpret_cast<uint64_t*>(&copy)[i] = std::atomic_ref(all.cells[i]).load();
  std::memcpy(counts, &copy, std::min<uint64_t>(bytes, sizeof copy));
}

void hvd_standin_reset_counts() {
  for (uint64_t& cell : all.cells) std::atomic_ref(cell).store(0);
}

void hvd_standin_host_access(const void* address, uint64_t bytes, int writes) {
  const Stack stack = here();
  const std::lock_guard lock(core().mutex);
  if (find_allocation(reinterpret_cast<uint64_t>(address)) == nullptr) return;  // pageable: not shared with a stream
  note_access(host_site(writes != 0 ? "a write of the host" : "a read of the host", stack),
              reinterpret_cast<uint64_t>(address), bytes, writes != 0);
}

const char* hvd_standin_marker() { return "stand-in: no GPU"; }
