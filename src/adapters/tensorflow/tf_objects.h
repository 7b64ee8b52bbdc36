// Owners of TensorFlow's objects, and the text of its failures. Used by the kernels and the shape functions.
// Thread rule: each object belongs to one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "adapters/tensorflow/tf_api.h"

namespace hvd::tensorflow {

struct TensorDeleter {
  void operator()(TF_Tensor* tensor) const { api().DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, TensorDeleter>;

struct ShapeDeleter {
  void operator()(TF_ShapeHandle* shape) const { api().DeleteShapeHandle(shape); }
};
using Shape = std::unique_ptr<TF_ShapeHandle, ShapeDeleter>;

// A status for TensorFlow functions to write into.
class TfStatus {
 public:
  TfStatus() : status_(api().NewStatus()) {}
  TfStatus(int code, const std::string& message) : TfStatus() { api().SetStatus(status_, code, message.c_str()); }
  TfStatus(const TfStatus&) = delete;
  TfStatus& operator=(const TfStatus&) = delete;
  ~TfStatus() { api().DeleteStatus(status_); }

  TF_Status* get() const { return status_; }
  bool ok() const { return api().GetCode(status_) == 0; }
  std::string message() const { return api().Message(status_); }

 private:
  TF_Status* status_;
};

inline std::vector<int64_t> shape_of(const TF_Tensor* tensor) {
  std::vector<int64_t> shape(static_cast<size_t>(api().NumDims(tensor)));
  for (size_t i = 0; i < shape.size(); i++) shape[i] = api().Dim(tensor, static_cast<int>(i));
  return shape;
}

}  // namespace hvd::tensorflow
