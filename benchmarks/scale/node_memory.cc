#include "scale/node_memory.h"

#include <array>
#include <cstdlib>
#include <new>

namespace hvd {
namespace {

// In front of every block.
struct alignas(std::max_align_t) Header {
  size_t size;
  Owner owner;
};

std::array<size_t, 4> live{};
Owner charged = Owner::none;

}  // namespace

size_t live_bytes(Owner owner) { return live[static_cast<size_t>(owner)]; }
void charge(Owner owner) { charged = owner; }

namespace {

void* allocate(size_t size) {
  void* block = std::malloc(sizeof(Header) + size);
  if (block == nullptr) throw std::bad_alloc();
  Header* header = new (block) Header{size, charged};
  live[static_cast<size_t>(charged)] += size;
  return header + 1;
}

void release(void* memory) {
  if (memory == nullptr) return;
  Header* header = static_cast<Header*>(memory) - 1;
  live[static_cast<size_t>(header->owner)] -= header->size;
  std::free(header);
}

}  // namespace
}  // namespace hvd

// Not inlined: the compiler would take the pairs of new and free for mistakes.
[[gnu::noinline]] void* operator new(size_t size) { return hvd::allocate(size); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { hvd::release(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { hvd::release(memory); }
