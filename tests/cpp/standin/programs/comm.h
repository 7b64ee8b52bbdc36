// A NCCL communicator of a test program, one GPU per rank.
#pragma once

#include <thread>

#include "gpu.h"
#include "ranks.h"

namespace nc = standin::nccl;

inline nc::UniqueId shared_id() {
  nc::UniqueId id{};
  if (ranks::rank() == 0) NC(ncclGetUniqueId(&id));
  ranks::share(&id, sizeof id);
  return id;
}

inline nc::Config config(bool blocking) {
  return {.size = sizeof(nc::Config),
          .magic = nc::kConfigMagic,
          .version = 21800,
          .blocking = blocking ? 1 : 0,
          .cga_cluster_size = nc::kUndefined,
          .min_ctas = nc::kUndefined,
          .max_ctas = nc::kUndefined,
          .net_name = nullptr,
          .split_share = nc::kUndefined,
          .traffic_class = nc::kUndefined};
}

// Polls while a call is in progress, and returns how it ended.
inline int settled(void* comm, int result) {
  while (result == nc::kInProgress) {
    NC(ncclCommGetAsyncError(comm, &result));
    if (result == nc::kInProgress) std::this_thread::yield();
  }
  return result;
}

class Comm {
 public:
  explicit Comm(bool blocking = false) {
    auto with = config(blocking);
    const auto id = shared_id();
    const int result = gpu::nccl().ncclCommInitRankConfig(&handle_, ranks::size(), id, ranks::rank(), &with);
    EXPECT_CODE(nc::kSuccess, settled(handle_, result));
  }
  ~Comm() {
    if (handle_ == nullptr) return;
    EXPECT_CODE(nc::kSuccess, settled(handle_, gpu::nccl().ncclCommFinalize(handle_)));
    NC(ncclCommDestroy(handle_));
  }
  Comm(const Comm&) = delete;
  operator void*() const { return handle_; }
  // A call on it, until it is launched.
  void done(int result) const { EXPECT_CODE(nc::kSuccess, settled(handle_, result)); }
  void* take() { return std::exchange(handle_, nullptr); }

 private:
  void* handle_ = nullptr;
};
