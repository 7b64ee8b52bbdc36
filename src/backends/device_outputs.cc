#include "backends/device_outputs.h"

#include <utility>

namespace hvd {

DeviceOutputs& DeviceOutputs::instance() {
  static auto* outputs = new DeviceOutputs;
  return *outputs;
}

void DeviceOutputs::add(std::byte* memory, const void* owner, Free free) {
  std::lock_guard lock(mutex_);
  is_used_.store(true);
  outputs_[memory] = {owner, std::move(free)};
}

bool DeviceOutputs::free(std::byte* memory) {
  if (!is_used_.load()) return false;
  std::lock_guard lock(mutex_);  // held meanwhile: the owner must not end before
  auto found = outputs_.find(memory);
  if (found == outputs_.end()) return false;
  found->second.free();
  outputs_.erase(found);
  return true;
}

void DeviceOutputs::take(std::byte* memory) {
  if (!is_used_.load()) return;
  std::lock_guard lock(mutex_);
  if (auto found = outputs_.find(memory); found != outputs_.end()) found->second.owner = nullptr;
}

void DeviceOutputs::forget_all_of(const void* owner) {
  if (!is_used_.load()) return;
  std::lock_guard lock(mutex_);
  for (auto it = outputs_.begin(); it != outputs_.end();) {
    if (it->second.owner != owner && it->second.owner != nullptr) {
      ++it;
      continue;
    }
    new Free(std::move(it->second.free));  // it holds what must not be destroyed
    it = outputs_.erase(it);
  }
}

void DeviceOutputs::free_all_of(const void* owner) {
  if (!is_used_.load()) return;
  std::lock_guard lock(mutex_);
  for (auto it = outputs_.begin(); it != outputs_.end();) {
    if (it->second.owner != owner) {
      ++it;
      continue;
    }
    it->second.free();
    it = outputs_.erase(it);
  }
}

}  // namespace hvd
