// Memory, and copies on streams.
#include <cstdio>
#include <cstring>

#include "cuda_call.h"

using namespace standin;

int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  if (const int refused = enter_context("cuMemAlloc_v2", bytes); refused != 0) return refused;
  count(&Counts::device_allocations);
  if (bytes == 0) return cuda::kInvalidValue;
  const Stack stack = here();
  const std::lock_guard lock(core().mutex);
  const auto made = allocate(current_context()->gpu, bytes, stack);
  if (made == nullptr) return cuda::kOutOfMemory;
  *address = made->address;
  return 0;
}

namespace {

// The live allocation that begins here; null after a violation.
std::shared_ptr<Allocation> to_free(uint64_t address, bool host, const char* call) {
  const auto found = find_allocation(address);
  if (found && found->address == address && !found->freed && (found->gpu == kHost) == host) return found;
  char text[100];
  std::snprintf(text, sizeof text, "%s of 0x%llx, which is not the begin of live memory of that kind\n", call,
                static_cast<unsigned long long>(address));
  violation(text + (found ? "  it lies in " + to_text(*found) : "") +
            (found && found->freed ? "  freed before by " + to_text(*found->freed) : "") + "  called from\n" +
            to_text(here()));
  return nullptr;
}

}  // namespace

int cuMemFree_v2(uint64_t address) {
  if (address == 0) return 0;
  STANDIN_ENTER_CONTEXT("cuMemFree_v2");
  count(&Counts::device_frees);
  const Stack stack = here();
  std::unique_lock lock(core().mutex);
  const auto found = to_free(address, false, "cuMemFree");
  if (found == nullptr) return cuda::kInvalidValue;
  const auto site = host_site("cuMemFree", stack);
  wait_for_all(current_context(), lock);  // as the real one does; but programs must not count on that order
  release(*found, site);
  return 0;
}

int cuMemGetInfo_v2(size_t* free, size_t* total) {
  STANDIN_ENTER_CONTEXT("cuMemGetInfo_v2");
  const std::lock_guard lock(core().mutex);
  *total = settings().memory;
  *free = *total - bytes_in_use(current_context()->gpu);
  return 0;
}

int cuMemHostAlloc(void** block, size_t bytes, unsigned) {
  if (const int refused = enter_context("cuMemHostAlloc", bytes); refused != 0) return refused;
  count(&Counts::pinned_allocations);
  if (bytes == 0) return cuda::kInvalidValue;
  const Stack stack = here();
  const std::lock_guard lock(core().mutex);
  const auto made = allocate(kHost, bytes, stack);
  if (made == nullptr) return cuda::kOutOfMemory;
  *block = reinterpret_cast<void*>(made->address);
  return 0;
}

int cuMemFreeHost(void* block) {
  STANDIN_ENTER_CONTEXT("cuMemFreeHost");
  count(&Counts::pinned_frees);
  const Stack stack = here();
  std::unique_lock lock(core().mutex);
  const auto found = to_free(reinterpret_cast<uint64_t>(block), true, "cuMemFreeHost");
  if (found == nullptr) return cuda::kInvalidValue;
  const auto site = host_site("cuMemFreeHost", stack);
  wait_for_all(current_context(), lock);
  release(*found, site);
  return 0;
}

int cuPointerGetAttribute(void* value, int attribute, uint64_t address) {
  STANDIN_ENTER_CONTEXT("cuPointerGetAttribute");
  const std::lock_guard lock(core().mutex);
  const auto found = find_allocation(address);
  if (found == nullptr || found->freed) return cuda::kInvalidValue;
  if (attribute == cuda::kPointerMemoryType) {
    const unsigned kind = found->gpu == kHost ? cuda::kMemoryHost : cuda::kMemoryDevice;
    std::memcpy(value, &kind, sizeof kind);
    return 0;
  }
  if (attribute != cuda::kPointerOrdinal) return cuda::kInvalidValue;
  const int gpu = found->gpu == kHost ? 0 : found->gpu;
  std::memcpy(value, &gpu, sizeof gpu);
  return 0;
}

namespace {

bool is_pinned(const void* address, size_t bytes) {
  const auto found = find_range(reinterpret_cast<uint64_t>(address), bytes);
  return found != nullptr && !found->freed && found->gpu == kHost;
}

// Notes both accesses, then moves the bytes: on the worker of the stream, when it gets there.
void copy_now(const SitePointer& site, uint64_t to, uint64_t from, size_t bytes) {
  {
    const std::lock_guard lock(core().mutex);
    if (!note_access(site, from, bytes, false) || !note_access(site, to, bytes, true)) return;
  }
  std::memmove(bytes_at(to), bytes_at(from), bytes);
}

}  // namespace

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* handle) {
  STANDIN_ENTER_CONTEXT("cuMemcpyDtoDAsync_v2");
  count(&Counts::copies);
  if (settings().count_only) return 0;
  const Stack stack = here();
  const std::lock_guard lock(core().mutex);
  int code = 0;
  Stream* stream = launch_stream(handle, "cuMemcpyDtoDAsync", &code);
  if (stream == nullptr) return code;
  launch(*stream, host_site("cuMemcpyDtoDAsync", stack), "cuMemcpyDtoDAsync", {},
         [=](const SitePointer& site) { copy_now(site, to, from, bytes); });
  return 0;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* handle) {
  STANDIN_ENTER_CONTEXT("cuMemcpyHtoDAsync_v2");
  count(&Counts::copies);
  if (settings().count_only) return 0;
  const Stack stack = here();
  const std::lock_guard lock(core().mutex);
  int code = 0;
  Stream* stream = launch_stream(handle, "cuMemcpyHtoDAsync", &code);
  if (stream == nullptr) return code;
  const auto host = host_site("cuMemcpyHtoDAsync", stack);
  if (is_pinned(from, bytes)) {
    launch(*stream, host, "cuMemcpyHtoDAsync", {},
           [=](const SitePointer& site) { copy_now(site, to, reinterpret_cast<uint64_t>(from), bytes); });
  } else {  // pageable memory is read during the call
    auto copy =
        std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
    launch(*stream, host, "cuMemcpyHtoDAsync", {}, [=](const SitePointer& site) {
      {
        const std::lock_guard noting(core().mutex);
        if (!note_access(site, to, bytes, true)) return;
      }
      std::memcpy(bytes_at(to), copy->data(), bytes);
    });
  }
  return 0;
}

int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* handle) {
  STANDIN_ENTER_CONTEXT("cuMemcpyDtoHAsync_v2");
  count(&Counts::copies);
  if (settings().count_only) return 0;
  const Stack stack = here();
  std::unique_lock lock(core().mutex);
  int code = 0;
  Stream* stream = launch_stream(handle, "cuMemcpyDtoHAsync", &code);
  if (stream == nullptr) return code;
  const auto host = host_site("cuMemcpyDtoHAsync", stack);
  if (is_pinned(to, bytes)) {
    launch(*stream, host, "cuMemcpyDtoHAsync", {},
           [=](const SitePointer& site) { copy_now(site, reinterpret_cast<uint64_t>(to), from, bytes); });
  } else {  // into pageable memory the call waits
    const Point point = launch(*stream, host, "cuMemcpyDtoHAsync", {}, [=](const SitePointer& site) {
      {
        const std::lock_guard noting(core().mutex);
        if (!note_access(site, from, bytes, false)) return;
      }
      std::memcpy(to, bytes_at(from), bytes);
    });
    const VectorClock clock = stream->clock;
    wait_for(point, lock);
    host_clock().join(clock);
    return sticky_error();
  }
  return 0;
}

int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void* handle) {
  STANDIN_ENTER_CONTEXT("cuMemsetD8Async");
  count(&Counts::memsets);
  if (settings().count_only) return 0;
  const Stack stack = here();
  const std::lock_guard lock(core().mutex);
  int code = 0;
  Stream* stream = launch_stream(handle, "cuMemsetD8Async", &code);
  if (stream == nullptr) return code;
  launch(*stream, host_site("cuMemsetD8Async", stack), "cuMemsetD8Async", {}, [=](const SitePointer& site) {
    {
      const std::lock_guard noting(core().mutex);
      if (!note_access(site, to, bytes, true)) return;
    }
    std::memset(bytes_at(to), value, bytes);
  });
  return 0;
}
