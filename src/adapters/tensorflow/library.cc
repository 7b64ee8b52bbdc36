// libhorovod_tensorflow.so: loaded by tf.load_op_library, which collects the operations that are registered meanwhile.
// So registration is a static initialiser. It is the only one here that does something, and those of other files only
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

// Never destroyed: TensorFlow's threads may still run kernels while the process ends.
const std::string& problem = *new std::string(register_all());

}  // namespace

// What went wrong while the library was loaded; an empty text if nothing did.
extern "C" __attribute__((visibility("default"))) const char* hvd_tensorflow_problem() { return problem.c_str(); }
