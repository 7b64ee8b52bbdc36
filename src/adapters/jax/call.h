// The attributes of a custom call of XLA, read from its frame and validated. Used by the handlers of library.cc. Thread
// rule: plain data; it points into the frame.
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

// Ends a call. The text is shown to the user.
struct CallError : std::runtime_error {
  CallError(FfiErrorCode kind, const std::string& text) : std::runtime_error(text), code(kind) {}
  FfiErrorCode code;
};

// The attributes of a collective. Lists are strings, because XLA has no list of strings: one name per line, numbers
// separated by commas.
struct Call {
  hvd_kind kind;
  hvd_reduce_op reduce_op;
  int32_t process_set;
  int32_t root_rank;
  double prescale_factor;
  double postscale_factor;
  std::string_view verb;           // for messages
  std::vector<std::string> names;  // of the tensors, in the negotiation
  std::vector<int32_t> groups;     // number of tensors in each group; their sum is the number of names
  std::vector<int32_t> splits;     // alltoall; empty: even
};

// CallError if the frame was not compiled by `horovod.jax`.
Call read_call(const FfiFrame& frame, size_t tensors);

std::span<FfiBuffer* const> buffers_of(const FfiBuffers& list);

// Converts to hvd_tensor. Types without a counterpart are sent as another type of the same size: Python allows that
// only for verbs that move elements, or for which the bits are the same. CallError for elements smaller than a byte.
hvd_tensor tensor_of(const FfiBuffer& buffer, const GpuPlace& place = {});
size_t size_in_bytes(const FfiBuffer& buffer);

}  // namespace hvd::jax
