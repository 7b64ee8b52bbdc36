// An operation: a request together with this rank's buffers and the way to tell that it is done.
// Thread rule: owned by the engine; `finish` may run on any thread, once, without locks held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "model/request.h"

namespace hvd {

// How a tensor is seen. `stream` and `ready_event` belong to the accelerator runtime of `device`: the data is valid
// once `ready_event` has happened, and work on it is ordered by `stream`. Both are null for host memory.
struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  Device device = kHost;
  void* stream = nullptr;
  void* ready_event = nullptr;

  size_t bytes() const { return static_cast<size_t>(elements_of(shape)) * size_of(dtype); }
};

struct Operation {
  Request request;
  TensorView input;
  // For kinds whose output size is known at submit: the caller's buffer (it may be the input's). Otherwise data is null
  // until the sizes are known; then `allocate` provides the memory for output.shape, or the engine does.
  TensorView output;
  std::function<std::byte*(const TensorView& output)> allocate;
  std::unique_ptr<std::byte[], void (*)(std::byte*)> owned_output{nullptr, nullptr};  // engine-allocated output
  std::vector<int32_t> splits;           // alltoall: rows for each rank of the set; empty: even
  std::vector<int32_t> received_splits;  // alltoall: filled when done
  int32_t result = -1;                   // join: last rank; add_process_set: id
  Status status;                         // valid once done
};

}  // namespace hvd
