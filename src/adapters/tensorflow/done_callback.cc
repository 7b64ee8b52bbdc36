#include "adapters/tensorflow/done_callback.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace hvd::tensorflow {
namespace {

// The layout of std::function in libstdc++: storage for the bound object, the function that copies or destroys it, the
// function that calls it.
struct Layout {
  void* bound[2];
  void* manage;
  void* invoke;
};
static_assert(sizeof(Layout) == sizeof(Finish));
static_assert(alignof(Layout) == alignof(Finish));

// A kernel is called from few places, so there are few different functions; asking the loader costs a microsecond.
std::array<std::atomic<void*>, 8> known{};

bool is_code(void* address) {
  if (address == nullptr) return false;
  for (const std::atomic<void*>& each : known) {
    if (each.load(std::memory_order_relaxed) == address) return true;
  }
  Dl_info info;
  if (dladdr(address, &info) == 0) return false;
  for (std::atomic<void*>& each : known) {
    void* expected = nullptr;
    if (each.compare_exchange_strong(expected, address, std::memory_order_relaxed)) break;
  }
  return true;
}

}  // namespace

std::optional<Finish> copy_callback(const TF_AsyncOpKernelDoneCallback* done) {
  if (done == nullptr) return std::nullopt;
  Layout layout;
  std::memcpy(&layout, done, sizeof(layout));
  if (!is_code(layout.manage) || !is_code(layout.invoke)) return std::nullopt;
  return *reinterpret_cast<const Finish*>(done);
}

}  // namespace hvd::tensorflow
