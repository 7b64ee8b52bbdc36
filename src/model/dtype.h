// Element types. The numbers are part of the C ABI (horovod.h). Thread rule: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hvd {

enum class DType : uint8_t { u8, i8, u16, i16, i32, i64, f16, f32, f64, boolean, bf16, c64, c128 };
inline constexpr DType kLastDType = DType::c128;

constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
    case DType::i8:
    case DType::boolean: return 1;
    case DType::u16:
    case DType::i16:
    case DType::f16:
    case DType::bf16: return 2;
    case DType::i32:
    case DType::f32: return 4;
    case DType::i64:
    case DType::f64:
    case DType::c64: return 8;
    case DType::c128: return 16;
  }
  return 0;
}

std::string_view name_of(DType dtype);  // "float32", as NumPy spells it

}  // namespace hvd
