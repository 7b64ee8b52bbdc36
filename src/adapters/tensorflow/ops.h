// Registers the graph operations and their kernels with TensorFlow. Called once, by library.cc.
#pragma once

#include <string>

namespace hvd::tensorflow {

// Returns what went wrong, or an empty text.
std::string register_ops();

}  // namespace hvd::tensorflow
