#include "transport/shared_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>

namespace hvd {
namespace {

constexpr size_t kPopulateLimit = 256 << 20;  // mapping more than this at once delays start-up for little gain

// How much memory the container may still use, from the cgroup files; max if there is no limit.
uint64_t container_memory_left() {
  auto number = [](const char* path) -> uint64_t {
    std::ifstream file(path);
    uint64_t value = UINT64_MAX;
    if (!(file >> value)) return UINT64_MAX;  // no such file, or "max"
    return value;
  };
  for (auto [limit, usage] :
       {std::pair{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        std::pair{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}}) {
    uint64_t most = number(limit), used = number(usage);
    if (most != UINT64_MAX && used != UINT64_MAX) return most > used ? most - used : 0;
  }
  return UINT64_MAX;
}

Status too_large(size_t bytes, std::string_view limit) {
  return {
      Code::unknown,
      fmt::format("shared memory of {} MiB for the ranks of this host does not fit {}; raise the limit, start fewer "
                  "processes per host, or lower HOROVOD_SHM_RING_BYTES and HOROVOD_SHM_CHUNK_BYTES",
                  (bytes + (1 << 20) - 1) >> 20, limit)};
}

// Whether another rank has mapped this range before, see map_shared_memory(). The size of the object does not tell,
// because its ranges are far apart.
bool is_present(const UniqueFd& memory, size_t offset, size_t bytes) {
  auto last = static_cast<off_t>(offset + bytes - 1);
  return bytes > 0 && ::lseek(memory.get(), last, SEEK_DATA) == last;
}

// Allocates the pages of a range. fallocate never shrinks the object, so every rank may do it.
Status reserve(const UniqueFd& memory, size_t offset, size_t bytes) {
  if (!is_present(memory, offset, bytes)) {
    if (uint64_t left = container_memory_left(); bytes > left) {
      return too_large(bytes, fmt::format("the {} MiB that the memory limit of this container leaves", left >> 20));
    }
  }
  int failed = 0;
  do {
    failed = ::fallocate(memory.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (failed == EINTR);
  if (failed == 0) return {};
  if (failed == EFBIG) return too_large(bytes, "the file size limit (ulimit -f)");
  if (failed == ENOSPC || failed == ENOMEM) return too_large(bytes, "the memory that is left");
  return system_error("cannot reserve shared memory", "", failed);
}

}  // namespace

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Result<UniqueFd> create_shared_memory(size_t bytes) {
  UniqueFd memory(::memfd_create("horovod", MFD_CLOEXEC));
  if (!memory) return system_error("cannot create shared memory", "(memfd_create)");
  if (Status status = reserve(memory, 0, bytes); !status.ok()) return status;
  return memory;
}

Result<Mapping> map_shared_memory(const UniqueFd& memory, size_t offset, size_t bytes) {
  if (Status status = reserve(memory, offset, bytes); !status.ok()) return status;
  int flags = MAP_SHARED | (bytes <= kPopulateLimit ? MAP_POPULATE : 0);
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, memory.get(), static_cast<off_t>(offset));
  if (data == MAP_FAILED) {
    if (errno == ENOMEM) return too_large(bytes, "the address space limit (ulimit -v)");
    return system_error("cannot map shared memory", "");
  }
  Mapping mapping(static_cast<std::byte*>(data), bytes);
  // Pages that are only reserved count as a hole until they are first touched; is_present() looks at the last one.
  if (bytes > 0) (void)*(static_cast<const volatile std::byte*>(data) + bytes - 1);
  if (::madvise(data, bytes, MADV_DONTFORK) != 0) return system_error("cannot keep shared memory from children", "");
  return mapping;
}

void discard_shared_memory(const UniqueFd& memory, size_t offset, size_t bytes) {
  ::fallocate(memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
}

}  // namespace hvd
