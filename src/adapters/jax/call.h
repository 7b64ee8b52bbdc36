// What a custom call of XLA was compiled with, read from its frame and checked. Used by the handlers of library.cc.
// Thread rule: plain data; it points into the frame.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/jax/ffi_api.h"
#include "adapters/jax/gpu_place.h"
#include "horovod/horovod.h"

namespace hvd::jax {

// Ends a call. The text goes to the user.
struct CallError : std::runtime_error {
  CallError(FfiErrorCode kind, const std::string& text) : std::runtime_error(text), code(kind) {}
  FfiErrorCode code;
};

// The attributes of a collective. Lists are texts, because XLA has no list of strings: names one per line, numbers with
// commas between them.
struct Call {
  hvd_kind kind;
  hvd_reduce_op reduce_op;
  int32_t process_set;
  int32_t root_rank;
  double prescale_factor;
  double postscale_factor;
  std::string_view verb;           // for messages
  std::vector<std::string> names;  // of the tensors, on the wire
  std::vector<int32_t> groups;     // how many tensors belong together; in all as many as there are names
  std::vector<int32_t> splits;     // alltoall; empty: even
};

// CallError if the frame is not what `horovod.jax` compiles.
Call read_call(const FfiFrame& frame, size_t tensors);

std::span<FfiBuffer* const> buffers_of(const FfiBuffers& list);

// As hvd_tensor. What has no counterpart is sent as a type of the same size: Python lets only verbs do so that move
// elements, or for which the bits come out the same. CallError for elements of less than a byte.
hvd_tensor tensor_of(const FfiBuffer& buffer, const GpuPlace& place = {});
size_t size_in_bytes(const FfiBuffer& buffer);

}  // namespace hvd::jax
