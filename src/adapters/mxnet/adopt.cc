#include "adapters/mxnet/adopt.h"

#include <memory>
#include <optional>
#include <vector>

namespace hvd::mxnet {
namespace {

struct DLType {
  uint8_t code, bits;
};
constexpr uint8_t kInt = 0, kUint = 1, kFloat = 2;

std::optional<DLType> dl_type(int32_t dtype) {
  switch (dtype) {
    case HVD_UINT8: return DLType{kUint, 8};
    case HVD_INT8: return DLType{kInt, 8};
    case HVD_INT32: return DLType{kInt, 32};
    case HVD_INT64: return DLType{kInt, 64};
    case HVD_FLOAT16: return DLType{kFloat, 16};
    case HVD_FLOAT32: return DLType{kFloat, 32};
    case HVD_FLOAT64: return DLType{kFloat, 64};
    default: return std::nullopt;
  }
}

struct Adopted {
  DLManagedTensor managed{};
  std::vector<int64_t> shape;
};

void give_back(DLManagedTensor* managed) {
  std::unique_ptr<Adopted> adopted(static_cast<Adopted*>(managed->manager));
  hvd_free(managed->tensor.data);
}

}  // namespace

std::string adopt(const hvd_tensor& tensor, NDArrayHandle* array) {
  std::optional<DLType> type = dl_type(tensor.dtype);
  if (!type) return "MXNet has no arrays of this type";
  auto adopted = std::make_unique<Adopted>();
  adopted->shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  adopted->managed = {.tensor = {.data = tensor.data,
                                 .device_type = kCpu.device_type,
                                 .device_id = kCpu.device_id,
                                 .ndim = tensor.ndim,
                                 .type_code = type->code,
                                 .type_bits = type->bits,
                                 .type_lanes = 1,
                                 .shape = adopted->shape.data(),
                                 .strides = nullptr,
                                 .byte_offset = 0},
                      .manager = adopted.get(),
                      .deleter = &give_back};
  if (api().NDArrayFromDLPackEx(&adopted->managed, false, array) != 0) return api().GetLastError();
  static_cast<void>(adopted.release());  // now owned by the array
  return {};
}

}  // namespace hvd::mxnet
