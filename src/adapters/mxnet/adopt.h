// Arrays of MXNet over memory of Horovod's engine, without a copy.
// Thread rule: any thread.
#pragma once

#include <string>

#include "adapters/mxnet/mx_api.h"
#include "horovod/horovod.h"

namespace hvd::mxnet {

// Makes an array of the tensor, whose memory hvd_take_result gave; hvd_free gets it when the array is gone. Returns an
// empty text, or why not: then the memory is still the caller's.
std::string adopt(const hvd_tensor& tensor, NDArrayHandle* array);

}  // namespace hvd::mxnet
