// MXNet arrays on memory of Horovod's engine, without a copy.
// Thread rule: any thread.
#pragma once

#include <string>

#include "adapters/mxnet/mx_api.h"
#include "horovod/horovod.h"

namespace hvd::mxnet {

// Creates an array from the tensor, whose memory came from hvd_take_result; when the array is freed, hvd_free gets it.
// Returns an empty text, or an error: then the caller still owns the memory.
std::string adopt(const hvd_tensor& tensor, NDArrayHandle* array);

}  // namespace hvd::mxnet
