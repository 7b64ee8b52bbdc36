// Keeps TensorFlow's "the kernel is done" callback after the call that provided it.
//
// The C API passes the address of a std::function<void()> that is destroyed when compute returns; calling it later
// through TF_RunAsyncOpKernelDoneCallback crashes. So it is copied as the std::function that it is. This relies on
// TensorFlow and this library using the same layout (that of libstdc++), which is checked before its first word is
// called.
//
// Thread rule: any thread.
#pragma once

#include <functional>
#include <optional>

#include "adapters/tensorflow/tf_api.h"

namespace hvd::tensorflow {

using Finish = std::function<void()>;

// The copy; empty if the object does not look like a std::function whose code is in a loaded library.
std::optional<Finish> copy_callback(const TF_AsyncOpKernelDoneCallback* done);

}  // namespace hvd::tensorflow
