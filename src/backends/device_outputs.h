// Outputs in device memory that a backend has allocated, so that hvd_free can return them to it.
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>

namespace hvd {

class DeviceOutputs {
 public:
  using Free = std::function<void()>;
  static DeviceOutputs& instance();

  void add(std::byte* memory, const void* owner, Free free);
  bool free(std::byte* memory);           // false: it is not one of them
  void take(std::byte* memory);           // it is the caller's now, and may outlive its owner
  void free_all_of(const void* owner);    // which is about to end
  void forget_all_of(const void* owner);  // which cannot free any more

 private:
  struct Output {
    const void* owner;
    Free free;
  };
  std::mutex mutex_;                  // guards outputs_
  std::atomic<bool> is_used_{false};  // so that processes without GPUs need no lock
  std::map<std::byte*, Output> outputs_;
};

}  // namespace hvd
