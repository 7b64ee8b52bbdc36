// Requests for the suites of the C ABI. Thread rule: pure functions.
#pragma once

#include "horovod/horovod.h"

namespace test {

inline hvd_tensor bytes_at(void* data, const int64_t* shape, int32_t dimensions) {
  return {.struct_size = sizeof(hvd_tensor),
          .dtype = HVD_UINT8,
          .device = HVD_HOST_DEVICE,
          .ndim = dimensions,
          .shape = shape,
          .data = data,
          .stream = nullptr,
          .ready_event = nullptr};
}

// The engine allocates what an allgather gives.
inline hvd_request request_of(hvd_kind kind, const char* name, const hvd_tensor& input) {
  hvd_request request{};
  request.struct_size = sizeof request;
  request.kind = kind;
  request.reduce_op = HVD_SUM;
  request.name = name;
  request.prescale_factor = request.postscale_factor = 1.0;
  request.input = input;
  if (kind == HVD_ALLGATHER) {
    request.output.struct_size = sizeof(hvd_tensor);
    request.output.device = HVD_HOST_DEVICE;
  } else {
    request.output = input;
  }
  return request;
}

}  // namespace test
