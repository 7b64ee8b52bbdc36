// Keeps TensorFlow's "the kernel is done" callback beyond the call that brought it.
//
// The C API hands out the address of a std::function<void()> that dies when compute returns; calling it later through
// TF_RunAsyncOpKernelDoneCallback crashes. So it is copied, as the std::function that it is. This relies on TensorFlow
// and us using the same layout (that of libstdc++), which is checked before the first word of it is called.
//
// Thread rule: any thread.
#pragma once

#include <functional>
#include <optional>

#include "adapters/tensorflow/tf_api.h"

namespace hvd::tensorflow {

using Finish = std::function<void()>;

// The copy; nothing if the object does not look like a std::function whose code is in a loaded library.
std::optional<Finish> copy_callback(const TF_AsyncOpKernelDoneCallback* done);

}  // namespace hvd::tensorflow
