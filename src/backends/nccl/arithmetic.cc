#include "backends/nccl/arithmetic.h"

#include <bit>
#include <cmath>

#include "base/half.h"

namespace hvd {
namespace {

bool is_16_bit(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
bool is_floating(DType dtype) { return is_16_bit(dtype) || dtype == DType::f32 || dtype == DType::f64; }

// Existing scripts compare float16 results exactly: there the factor is rounded first, and the product once.
double rounded_for(DType dtype, double factor) {
  if (dtype != DType::f16) return factor;
  return static_cast<double>(half_to_float(float_to_half(static_cast<float>(factor))));
}

}  // namespace

std::optional<NcclType> nccl_type_of(DType dtype) {
  switch (dtype) {
    case DType::u8: return NcclType::u8;
    case DType::i8: return NcclType::i8;
    case DType::i32: return NcclType::i32;
    case DType::i64: return NcclType::i64;
    case DType::f16: return NcclType::f16;
    case DType::f32: return NcclType::f32;
    case DType::f64: return NcclType::f64;
    case DType::bf16: return NcclType::bf16;
    case DType::u16:
    case DType::i16:
    case DType::boolean:
    case DType::c64:
    case DType::c128: break;
  }
  return std::nullopt;
}

bool can_use_nccl(const Request& request) {
  if (reduces(request.kind) && request.reduce_op > ReduceOp::product) return false;
  switch (request.kind) {
    case Kind::allgather:
    case Kind::broadcast:
    case Kind::alltoall: return true;
    case Kind::allreduce:
      if (request.reduce_op == ReduceOp::adasum) return is_floating(request.dtype);
      return nccl_type_of(request.dtype).has_value();
    case Kind::reducescatter: return nccl_type_of(request.dtype).has_value();
    case Kind::barrier:
    case Kind::join:
    case Kind::add_process_set:
    case Kind::remove_process_set:
    case Kind::reduce:
    case Kind::gather:
    case Kind::scatter:
    case Kind::transfer:
    case Kind::probe:
    case Kind::form_process_set:
    case Kind::leave_process_set: break;
  }
  return false;
}

// NCCL's average multiplies every input by 1/n in the type of the tensor. In a 16-bit type 1/n is not exact unless n is
// a power of two, and every element would be wrong by the same share. So there the inputs are multiplied by a power of
// two, which is exact and prevents an overflow, and the sum by the rest in float32.
NcclReduction nccl_reduction_of(const Request& request, int32_t ranks) {
  NcclReduction reduction{.op = NcclOp::sum,
                          .before = rounded_for(request.dtype, request.prescale),
                          .after = rounded_for(request.dtype, request.postscale)};
  switch (request.reduce_op) {
    case ReduceOp::sum: break;
    case ReduceOp::min: reduction.op = NcclOp::min; break;
    case ReduceOp::max: reduction.op = NcclOp::max; break;
    case ReduceOp::product: reduction.op = NcclOp::product; break;
    case ReduceOp::bit_and:
    case ReduceOp::bit_or:
    case ReduceOp::bit_xor: break;  // refused by can_use_nccl()
    case ReduceOp::adasum:          // inside a host it is the average
    case ReduceOp::average: {
      bool is_power_of_two = std::has_single_bit(static_cast<uint32_t>(ranks));
      if (!is_floating(request.dtype)) {
        reduction.after = request.postscale / ranks;
      } else if (!is_16_bit(request.dtype) || is_power_of_two) {
        reduction.op = NcclOp::average;
      } else {
        double power = static_cast<double>(std::bit_ceil(static_cast<uint32_t>(ranks)));
        reduction.before /= power;
        reduction.after *= power / ranks;
      }
    }
  }
  return reduction;
}

}  // namespace hvd
