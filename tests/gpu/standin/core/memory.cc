#include "core/memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "core/settings.h"
#include "cuda_declarations.h"

namespace standin {
namespace {

constexpr size_t kRange = size_t{1} << 38;  // addresses of one GPU; no address is used twice
constexpr size_t kGuard = 512;              // bytes before and after each allocation, and its alignment
constexpr int kFresh = 0xff;                // NaN in every floating-point type
constexpr int kGuardByte = 0xa5;
constexpr size_t kFillLimit = size_t{64} << 20;  // of larger allocations, only the ends are filled

// One GPU's memory: `hidden` has no access rights, `open` has the bytes.
struct Range {
  char* hidden = nullptr;
  char* open = nullptr;
  size_t used = 0;
  size_t live = 0;
  int descriptor = -1;
};

struct Memory {
  std::map<uint64_t, std::shared_ptr<Allocation>> allocations;  // by address, freed ones too
  std::array<Range, 64> ranges;
  size_t pinned_live = 0;
  uint64_t count = 0;
  struct sigaction previous {};
};
Memory& memory() {
  static Memory& value = *new Memory;
  return value;
}

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::abort();
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uint64_t>(info->si_addr);
  for (size_t gpu = 0; gpu < memory().ranges.size(); ++gpu) {
    const Range& range = memory().ranges[gpu];
    const auto begin = reinterpret_cast<uint64_t>(range.hidden);
    if (range.hidden == nullptr || address < begin || address >= begin + kRange) continue;
    const auto allocation = find_allocation(address);
    char text[160];
    std::snprintf(text, sizeof text, "the host accessed device memory at 0x%llx of GPU %zu, in ",
                  static_cast<unsigned long long>(address), gpu);
    violation(text + (allocation ? to_text(*allocation) : std::string("no allocation\n")) + "  the access was in\n" +
              to_text(here()));
    ::_exit(kViolationExit);
  }
  ::sigaction(SIGSEGV, &memory().previous, nullptr);  // not ours: the access repeats, with the handler from before
  if ((memory().previous.sa_flags & SA_SIGINFO) != 0 && memory().previous.sa_sigaction != nullptr)
    memory().previous.sa_sigaction(signal, info, context);
}

void catch_faults() {
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  ::sigaction(SIGSEGV, &action, &memory().previous);
}

Range& range_of(int gpu) {
  Range& range = memory().ranges.at(static_cast<size_t>(gpu));
  if (range.hidden != nullptr) return range;
  if (memory().previous.sa_sigaction == nullptr) catch_faults();
  range.descriptor = ::memfd_create("standin-gpu", MFD_CLOEXEC);
  if (range.descriptor < 0 || ::ftruncate(range.descriptor, static_cast<off_t>(kRange)) != 0) die("stand-in: memfd");
  void* open = ::mmap(nullptr, kRange, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, range.descriptor, 0);
  void* hidden = ::mmap(nullptr, kRange, PROT_NONE, MAP_SHARED | MAP_NORESERVE, range.descriptor, 0);
  if (open == MAP_FAILED || hidden == MAP_FAILED) die("stand-in: mmap");
  ::madvise(open, kRange, MADV_DONTDUMP);
  range.open = static_cast<char*>(open);
  range.hidden = static_cast<char*>(hidden);
  range.used = kGuard;
  return range;
}

void fill(char* bytes, size_t count) {
  if (count <= kFillLimit) {
    std::memset(bytes, kFresh, count);
  } else {
    std::memset(bytes, kFresh, 4096);
    std::memset(bytes + count - 4096, kFresh, 4096);
  }
}

uint64_t place(int gpu, size_t bytes) {
  const size_t rounded = (bytes + kGuard - 1) / kGuard * kGuard;
  Range& range = range_of(gpu);
  if (bytes > settings().memory - range.live || range.used + rounded + 2 * kGuard > kRange) return 0;
  range.live += bytes;
  const size_t offset = range.used + kGuard;
  range.used = offset + rounded;
  if (!settings().count_only) {
    std::memset(range.open + offset - kGuard, kGuardByte, kGuard);
    fill(range.open + offset, bytes);
    std::memset(range.open + offset + bytes, kGuardByte, kGuard);
  }
  return reinterpret_cast<uint64_t>(range.hidden) + offset;
}

void check_guards(const Allocation& allocation) {
  if (settings().count_only) return;
  const char* bytes = bytes_at(allocation.address);
  for (size_t i = 0; i < kGuard; ++i) {
    // The zone behind may have become the one before the next allocation: the pattern is the same.
    if (static_cast<unsigned char>(bytes[-1 - static_cast<ptrdiff_t>(i)]) == kGuardByte &&
        static_cast<unsigned char>(bytes[allocation.bytes + i]) == kGuardByte)
      continue;
    violation("bytes beside an allocation were overwritten: " + to_text(allocation));
    return;
  }
}

// Gives the pages back; small blocks keep the pattern.
void forget(Allocation& allocation) {
  Range& range = range_of(allocation.gpu);
  range.live -= allocation.bytes;
  if (settings().count_only) return;
  char* bytes = bytes_at(allocation.address);
  const uint64_t offset = static_cast<uint64_t>(bytes - range.open);
  const uint64_t begin = (offset + 4095) / 4096 * 4096, end = (offset + allocation.bytes) / 4096 * 4096;
  if (allocation.bytes <= 65536) {
    std::memset(bytes, kFresh, allocation.bytes);
  } else if (end > begin) {
    ::fallocate(range.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                static_cast<off_t>(end - begin));
  }
}

void report(const Allocation& allocation, const Conflict& conflict, const Site& now, const char* does) {
  violation("two accesses that nothing orders, to bytes " + std::to_string(conflict.offset) + " to " +
            std::to_string(conflict.offset + conflict.bytes) + " of " + to_text(allocation) + "  one " +
            (conflict.earlier_writes ? "writes: " : "reads: ") + to_text(*conflict.earlier) + "  the other " + does +
            ": " + to_text(now));
}

}  // namespace

std::string to_text(const Allocation& allocation) {
  char text[160];
  std::snprintf(text, sizeof text, "allocation %llu (%zu bytes at 0x%llx, %s), made in\n",
                static_cast<unsigned long long>(allocation.number), allocation.bytes,
                static_cast<unsigned long long>(allocation.address),
                allocation.gpu == kHost ? "pinned" : ("GPU " + std::to_string(allocation.gpu)).c_str());
  return text + to_text(allocation.stack);
}

std::shared_ptr<Allocation> allocate(int gpu, size_t bytes, const Stack& stack) {
  uint64_t address = 0;
  if (gpu == kHost) {
    void* block = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return nullptr;
    fill(static_cast<char*>(block), bytes);
    address = reinterpret_cast<uint64_t>(block);
  } else {
    address = place(gpu, bytes);
    if (address == 0) return nullptr;
  }
  Memory& all = memory();
  auto made = std::make_shared<Allocation>(Allocation{.number = ++all.count,
                                                      .address = address,
                                                      .bytes = bytes,
                                                      .gpu = gpu,
                                                      .stack = stack,
                                                      .history = History(bytes)});
  all.allocations[address] = made;
  return made;
}

void release(Allocation& allocation, const SitePointer& site) {
  if (allocation.registered > 0)
    violation("memory is freed while it is registered with NCCL: " + to_text(allocation) + "  freed by " +
              to_text(*site));
  if (auto conflict = allocation.history.add(site, 0, allocation.bytes, true))
    report(allocation, *conflict, *site, "frees it");
  allocation.freed = site;
  allocation.history = History(0);
  if (allocation.gpu != kHost) {
    check_guards(allocation);
    forget(allocation);
    return;
  }
  // Pinned addresses come from the kernel, which may give them out again: protect the pages instead of unmapping them.
  ::mmap(reinterpret_cast<void*>(allocation.address), allocation.bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

size_t bytes_in_use(int gpu) { return range_of(gpu).live; }

std::shared_ptr<Allocation> find_allocation(uint64_t address) {
  auto& all = memory().allocations;
  auto next = all.upper_bound(address);
  if (next == all.begin()) return nullptr;
  const auto& found = std::prev(next)->second;
  return address < found->address + found->bytes ? found : nullptr;
}

std::shared_ptr<Allocation> find_range(uint64_t address, size_t bytes) {
  auto found = find_allocation(address);
  return found && address + bytes <= found->address + found->bytes ? found : nullptr;
}

char* bytes_at(uint64_t address) {
  for (const Range& range : memory().ranges) {
    const auto begin = reinterpret_cast<uint64_t>(range.hidden);
    if (range.hidden != nullptr && address >= begin && address < begin + kRange) return range.open + (address - begin);
  }
  return reinterpret_cast<char*>(address);
}

bool note_access(const SitePointer& site, uint64_t address, size_t bytes, bool writes) {
  if (bytes == 0) return true;
  const auto found = find_range(address, bytes);
  if (found == nullptr) {
    char text[120];
    std::snprintf(text, sizeof text,
                  "%s of %zu bytes at 0x%llx, outside every allocation: ", writes ? "a write" : "a read", bytes,
                  static_cast<unsigned long long>(address));
    violation(text + to_text(*site));
    set_sticky_error(cuda::kIllegalAddress);
    return false;
  }
  if (found->freed) {
    violation("freed memory is used, " + to_text(*found) + "  freed by " + to_text(*found->freed) + "  used by " +
              to_text(*site));
    set_sticky_error(cuda::kIllegalAddress);
    return false;
  }
  if (auto conflict = found->history.add(site, address - found->address, bytes, writes))
    report(*found, *conflict, *site, writes ? "writes" : "reads");
  return true;
}

std::string list_allocations() {
  std::string text;
  const std::lock_guard lock(core().mutex);
  for (const auto& [address, allocation] : memory().allocations) {
    if (allocation->freed) continue;
    if (allocation->gpu != kHost) check_guards(*allocation);
    text += "  " + to_text(*allocation);
  }
  return text;
}

}  // namespace standin
