#include "collectives/kernels.h"

#include <array>
#include <cassert>
#include <cstring>

#include "collectives/kernels_targets.h"

namespace hvd {
namespace {

#if defined(__x86_64__)
constexpr std::array kAllKernels = {&kBaselineKernels, &kX86V3Kernels, &kX86V4Kernels};
size_t count_supported() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("x86-64-v3")) return 1;
  return __builtin_cpu_supports("x86-64-v4") ? 3 : 2;
}
#else
constexpr std::array kAllKernels = {&kBaselineKernels};
size_t count_supported() { return 1; }
#endif

const Kernels& kBest = *supported_kernels().back();

// Copies of these lengths use our own code: memcpy uses rep movsb for them, which is slow to start (4 KiB into memory
// that another core has read: 0.1 us of 0.4).
constexpr size_t kOwnCopyFrom = 2 << 10;
constexpr size_t kOwnCopyTo = 16 << 10;

// A complex number is treated as two real ones, the bits of integers as bytes.
struct Elements {
  DType dtype;
  size_t count;
};
Elements parts_of(DType dtype, ReduceOp op, size_t count) {
  bool is_bitwise = op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
  if (is_bitwise && dtype != DType::boolean) return {DType::u8, size_of(dtype) * count};
  if (dtype == DType::c64) return {DType::f32, 2 * count};
  if (dtype == DType::c128) return {DType::f64, 2 * count};
  return {dtype, count};
}

const Kernels::Row& row_of(const Kernels& kernels, DType dtype) { return kernels.rows[static_cast<size_t>(dtype)]; }

bool is_complex(DType dtype) { return dtype == DType::c64 || dtype == DType::c128; }

bool is_real_float(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64;
}

Kernels::Operator operator_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::average:
    case ReduceOp::sum: return Kernels::kSum;
    case ReduceOp::min: return Kernels::kMin;
    case ReduceOp::max: return Kernels::kMax;
    case ReduceOp::product: return Kernels::kProduct;
    case ReduceOp::bit_and: return Kernels::kAnd;
    case ReduceOp::bit_or: return Kernels::kOr;
    case ReduceOp::bit_xor: return Kernels::kXor;
    case ReduceOp::adasum: break;  // not element-wise
  }
  assert(false);
  return Kernels::kSum;
}

}  // namespace

std::span<const Kernels* const> supported_kernels() { return std::span(kAllKernels).first(count_supported()); }

void reduce(const Kernels& kernels, DType dtype, ReduceOp op, std::byte* destination,
            std::span<const std::byte* const> sources, size_t count, double factor, std::byte* also, StoreHint store) {
  assert(can_reduce(dtype, op) || (op == ReduceOp::average && can_reduce(dtype, ReduceOp::sum)));
  assert(factor == 1.0 || can_scale(dtype));
  assert(!sources.empty());
  if (sources.size() == 1 && factor == 1.0 && dtype != DType::boolean) {
    if (destination != sources[0]) copy(kernels, destination, sources[0], count * size_of(dtype), StoreHint::cached);
    if (also != nullptr) copy(kernels, also, sources[0], count * size_of(dtype), store);
    return;
  }
  const Elements elements = parts_of(dtype, op, count);
  const bool streaming = store == StoreHint::streaming;
  row_of(kernels, elements.dtype)
      .reduce[operator_of(op)]({.destination = destination,
                                .copy = streaming ? nullptr : also,
                                .stream = streaming ? also : nullptr,
                                .sources = sources.data(),
                                .source_count = sources.size(),
                                .count = elements.count,
                                .factor = factor,
                                .weights = nullptr});
}

void scale(const Kernels& kernels, DType dtype, std::byte* destination, const std::byte* source, size_t count,
           double factor, StoreHint store) {
  assert(factor == 1.0 || can_scale(dtype));
  if (factor == 1.0) {
    if (destination != source) copy(kernels, destination, source, count * size_of(dtype), store);
    return;
  }
  const Elements elements = parts_of(dtype, ReduceOp::sum, count);
  const bool streaming = store == StoreHint::streaming;
  row_of(kernels, elements.dtype)
      .reduce[Kernels::kSum]({.destination = streaming ? nullptr : destination,
                              .copy = nullptr,
                              .stream = streaming ? destination : nullptr,
                              .sources = &source,
                              .source_count = 1,
                              .count = elements.count,
                              .factor = factor,
                              .weights = nullptr});
}

void copy(const Kernels& kernels, std::byte* destination, const std::byte* source, size_t bytes, StoreHint store) {
  if (store == StoreHint::streaming) return kernels.stream_copy(destination, source, bytes);
  if (bytes >= kOwnCopyFrom && bytes < kOwnCopyTo) return kernels.copy(destination, source, bytes);
  if (bytes != 0) std::memcpy(destination, source, bytes);
}

double dot(const Kernels& kernels, DType dtype, const std::byte* a, const std::byte* b, size_t count) {
  assert(is_real_float(dtype));
  return row_of(kernels, dtype).dot(a, b, count);
}

void weighted_sum(const Kernels& kernels, DType dtype, std::byte* destination,
                  std::span<const std::byte* const> sources, std::span<const double> weights, size_t count) {
  assert(is_real_float(dtype) && !sources.empty() && sources.size() == weights.size());
  row_of(kernels, dtype)
      .weighted_sum({.destination = destination,
                     .copy = nullptr,
                     .stream = nullptr,
                     .sources = sources.data(),
                     .source_count = sources.size(),
                     .count = count,
                     .factor = 1.0,
                     .weights = weights.data()});
}

void reduce(DType dtype, ReduceOp op, std::byte* destination, std::span<const std::byte* const> sources, size_t count,
            double factor, std::byte* copy, StoreHint store) {
  reduce(kBest, dtype, op, destination, sources, count, factor, copy, store);
}

void scale(DType dtype, std::byte* destination, const std::byte* source, size_t count, double factor, StoreHint store) {
  scale(kBest, dtype, destination, source, count, factor, store);
}

void copy(std::byte* destination, const std::byte* source, size_t bytes, StoreHint store) {
  copy(kBest, destination, source, bytes, store);
}

double dot(DType dtype, const std::byte* a, const std::byte* b, size_t count) { return dot(kBest, dtype, a, b, count); }

void weighted_sum(DType dtype, std::byte* destination, std::span<const std::byte* const> sources,
                  std::span<const double> weights, size_t count) {
  weighted_sum(kBest, dtype, destination, sources, weights, count);
}

bool can_reduce(DType dtype, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return true;
    case ReduceOp::average: return can_scale(dtype);
    case ReduceOp::adasum: return is_real_float(dtype);
    case ReduceOp::min:
    case ReduceOp::max:
    case ReduceOp::product: return !is_complex(dtype);
    case ReduceOp::bit_and:
    case ReduceOp::bit_or:
    case ReduceOp::bit_xor: return !is_complex(dtype) && !is_real_float(dtype);
  }
  return false;
}

bool can_scale(DType dtype) { return dtype != DType::u16 && dtype != DType::i16 && dtype != DType::boolean; }

}  // namespace hvd
