// An operation: a request with this rank's buffers and its completion callback. Thread rule: owned by the engine;
// `finish` may run on any thread, once, without locks held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "model/request.h"

namespace hvd {

// A view of a tensor. `stream` and `ready_event` belong to the accelerator runtime of `device`: the data is valid after
// `ready_event`, and `stream` orders work on it. Both are null for host memory.
struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  Device device = kHost;
  void* stream = nullptr;
  void* ready_event = nullptr;

  size_t bytes() const { return static_cast<size_t>(elements_of(shape)) * size_of(dtype); }
};

// Device memory belongs to its backend, which frees it when the result is released or when the backend ends.
struct FreeBytes {
  static inline void (*free_on_device)(std::byte* data) = nullptr;
  bool is_on_device = false;
  void operator()(std::byte* data) const {
    if (!is_on_device) {
      std::free(data);
    } else if (free_on_device != nullptr) {
      free_on_device(data);
    }
  }
};

// A part of an operation's execution, for the timeline.
struct TimedActivity {
  const char* name = nullptr;  // a literal
  TimePoint begin, end;
};

struct Operation {
  static constexpr int32_t kSelf = -2;  // as root_rank of a transfer: this rank, until it is checked

  Request request;
  TensorView input;
  // If the output size is known at submit: the caller's buffer (may be the input's). Otherwise data is null until the
  // sizes are known; then `allocate`, or else the engine, provides the memory for output.shape.
  TensorView output;
  std::function<std::byte*(const TensorView& output)> allocate;
  std::unique_ptr<std::byte, FreeBytes> owned_output;  // engine-allocated output
  std::vector<int64_t> sent_rows;                      // alltoall: for each rank of the set
  std::vector<int64_t> received_rows;  // allgather, alltoall, gather: from each rank; known before a backend runs
  int64_t largest_rows = 0;            // alltoall: the maximum over all pairs of ranks
  size_t output_room = 0;              // bytes of the caller's output if the size is not known at submit
  uint64_t set_serial = 0;             // of the process set at submit, see ProcessSets::serial()
  int32_t root_position = 0;           // of kinds with a root: its position in the process set
  int32_t peer = -1;                   // transfer: the other rank
  int32_t result = -1;                 // join: last rank; add_process_set, form_process_set: id; probe: the sender
  // On a device: backend events, recorded when the input is ready and when the output is written.
  std::shared_ptr<void> ready;
  std::shared_ptr<void> finished;
  std::shared_ptr<const std::vector<TimedActivity>> activities;  // null: its backend has recorded none
  bool is_stand_in = false;  // on a device, for a rank that has joined: zeros without memory of their own
  bool running = false;      // a backend is executing it
  Status status;             // valid once the operation is done
};

}  // namespace hvd
