#include "observe/memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

namespace hvd::observe {
namespace {

constexpr int kLowestDescriptor = 200;  // scripts number the descriptors that they open from 3

Status failed(std::string_view what) {
  return {Code::unknown, fmt::format("cannot {}: {}", what, std::strerror(errno))};
}

void mark(Shared& shared) {
  shared.version.store(kVersion, std::memory_order_relaxed);
  shared.size.store(sizeof(Shared), std::memory_order_relaxed);
  shared.magic.store(kMagic, std::memory_order_release);
}

// "201:1:4711", or nothing if it is no file.
std::string identity_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return {};
  return fmt::format("{}:{}:{}", descriptor, status.st_dev, status.st_ino);
}

int find_one(std::string_view text) {
  int descriptor = -1;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), descriptor);
  if (error != std::errc() || descriptor < 0 || identity_of(descriptor) != text) return -1;
  ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  return descriptor;
}

Result<UniqueFd> make_file(const char* name) {
  UniqueFd low(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!low) return failed("create memory for observation");
  UniqueFd file(::fcntl(low.get(), F_DUPFD_CLOEXEC, kLowestDescriptor));
  if (!file) return low;
  return file;
}

}  // namespace

Memory::~Memory() {
  if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
}

Result<Memory> Memory::create() {
  void* address = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return failed("map memory for observation");
  Memory memory(address);
  mark(*memory);
  return memory;
}

Result<Memory> Memory::map(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return failed("look at the memory for observation");
  if (status.st_size != static_cast<off_t>(sizeof(Shared)))
    return Status(Code::precondition,
                  "the memory for observation has another size: another version of Horovod made it");
  void* address = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) return failed("map memory for observation");
  Memory memory(address);
  bool is_known = memory->magic.load(std::memory_order_acquire) == kMagic &&
                  memory->version.load(std::memory_order_relaxed) == kVersion &&
                  memory->size.load(std::memory_order_relaxed) == sizeof(Shared);
  if (!is_known) return Status(Code::precondition, "the memory for observation is of another version of Horovod");
  return memory;
}

Result<Descriptors> make_descriptors() {
  auto file = make_file("horovod observation");
  if (!file.ok()) return file.status();
  auto stacks = make_file("horovod stacks");
  if (!stacks.ok()) return stacks.status();
  if (::ftruncate(file->get(), sizeof(Shared)) != 0) return failed("size the memory for observation");
  // Otherwise a worker could make it smaller while the launcher reads it.
  ::fcntl(file->get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  void* address = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0);
  if (address == MAP_FAILED) return failed("map memory for observation");
  mark(*static_cast<Shared*>(address));
  ::munmap(address, sizeof(Shared));
  return Descriptors{.memory = std::move(*file), .stacks = std::move(*stacks)};
}

std::string descriptors_text(const Descriptors& descriptors) {
  return identity_of(descriptors.memory.get()) + "," + identity_of(descriptors.stacks.get());
}

Found find_descriptors(std::string_view text) {
  size_t comma = text.find(',');
  if (comma == std::string_view::npos) return {};
  return {.memory = find_one(text.substr(0, comma)), .stacks = find_one(text.substr(comma + 1))};
}

}  // namespace hvd::observe
