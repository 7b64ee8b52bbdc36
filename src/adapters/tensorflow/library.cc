// libhorovod_tensorflow.so: loaded by tf.load_op_library, which collects the operations registered during loading. So
// registration is a static initialiser. It is the only one in this library with side effects; those in other files only
// build constants.
#include <exception>
#include <string>

#include "adapters/tensorflow/ops.h"
#include "adapters/tensorflow/tf_api.h"

namespace {

std::string register_all() try {
  std::string missing = hvd::tensorflow::load_api();
  if (!missing.empty()) return "this TensorFlow has no " + missing;
  return hvd::tensorflow::register_ops();
} catch (const std::exception& problem) {
  return problem.what();
}

// Never destroyed: TensorFlow's threads may still run kernels while the process exits.
const std::string& problem = *new std::string(register_all());

}  // namespace

// The error while the library was loaded; empty on success.
extern "C" __attribute__((visibility("default"))) const char* hvd_tensorflow_problem() { return problem.c_str(); }
