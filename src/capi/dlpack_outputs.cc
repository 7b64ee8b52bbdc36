// Outputs that a framework's own allocator provides, through DLPack's exchange table: functions of C that need neither
// Python nor its lock, so the engine's thread can call them. Declarations of our own, as everywhere; the layout is that
// of DLPack 1.2 and 1.3, and a table of another major version is refused.
#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "horovod/horovod.h"
#include "model/dtype.h"

namespace {

struct DlVersion {
  uint32_t major, minor;
};
struct DlType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DlTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  DlType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DlManaged {
  DlVersion version;
  void* manager_context;
  void (*deleter)(DlManaged* self);
  uint64_t flags;
  DlTensor tensor;
};
struct DlExchange {
  DlVersion version;
  const void* previous;
  int (*allocate)(DlTensor* like, DlManaged** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
};

constexpr uint32_t kMajor = 1;

DlType type_of(hvd::DType dtype) {
  constexpr uint8_t kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6;
  auto bits = static_cast<uint8_t>(8 * hvd::size_of(dtype));
  switch (dtype) {
    case hvd::DType::u8:
    case hvd::DType::u16: return {kUint, bits, 1};
    case hvd::DType::i8:
    case hvd::DType::i16:
    case hvd::DType::i32:
    case hvd::DType::i64: return {kInt, bits, 1};
    case hvd::DType::f16:
    case hvd::DType::f32:
    case hvd::DType::f64: return {kFloat, bits, 1};
    case hvd::DType::bf16: return {kBfloat, bits, 1};
    case hvd::DType::boolean: return {kBool, bits, 1};
    case hvd::DType::c64:
    case hvd::DType::c128: return {kComplex, bits, 1};
  }
  return {};
}

struct DlOutputs {
  const DlExchange* exchange;
  int32_t device_type, device_id;
  std::vector<DlManaged*> tensors;
};

}  // namespace

extern "C" {

void* hvd_dlpack_outputs_create(const void* exchange, int32_t device_type, int32_t device_id, int32_t count) {
  const auto* table = static_cast<const DlExchange*>(exchange);
  if (table == nullptr || table->version.major != kMajor || table->allocate == nullptr || count < 0) return nullptr;
  return new DlOutputs{table, device_type, device_id, std::vector<DlManaged*>(static_cast<size_t>(count), nullptr)};
}

void* hvd_dlpack_allocate(void* context, int32_t index, int32_t dtype, int32_t ndim, const int64_t* shape) {
  auto& outputs = *static_cast<DlOutputs*>(context);
  std::vector<int64_t> sizes(shape, shape + ndim);
  DlTensor like{.data = nullptr,
                .device_type = outputs.device_type,
                .device_id = outputs.device_id,
                .ndim = ndim,
                .dtype = type_of(static_cast<hvd::DType>(dtype)),
                .shape = sizes.data(),
                .strides = nullptr,
                .byte_offset = 0};
  DlManaged*& tensor = outputs.tensors[static_cast<size_t>(index)];
  int failed = outputs.exchange->allocate(&like, &tensor, nullptr, [](void*, const char* kind, const char* message) {
    hvd::log_error("the framework has no memory for an output: {}: {}", kind, message);
  });
  if (failed != 0 || tensor == nullptr) return nullptr;
  return static_cast<std::byte*>(tensor->tensor.data) + tensor->tensor.byte_offset;
}

void* hvd_dlpack_outputs_take(void* outputs, int32_t index) {
  return std::exchange(static_cast<DlOutputs*>(outputs)->tensors.at(static_cast<size_t>(index)), nullptr);
}

void hvd_dlpack_outputs_destroy(void* outputs) {
  if (outputs == nullptr) return;
  auto* own = static_cast<DlOutputs*>(outputs);
  for (DlManaged* tensor : own->tensors) {
    if (tensor != nullptr && tensor->deleter != nullptr) tensor->deleter(tensor);
  }
  delete own;
}

}  // extern "C"
