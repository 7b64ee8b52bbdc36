#include "model/dtype.h"

namespace hvd {

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::u8: return "uint8";
    case DType::i8: return "int8";
    case DType::u16: return "uint16";
    case DType::i16: return "int16";
    case DType::i32: return "int32";
    case DType::i64: return "int64";
    case DType::f16: return "float16";
    case DType::f32: return "float32";
    case DType::f64: return "float64";
    case DType::boolean: return "bool";
    case DType::bf16: return "bfloat16";
    case DType::c64: return "complex64";
    case DType::c128: return "complex128";
  }
  return "?";
}

}  // namespace hvd
