// What the kernels have to compute: one element at a time, in plain C++, from the words of kernels.h; and arrays to run
// them on. For kernels_test.cc. Thread rule: plain values and pure functions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "base/half.h"
#include "collectives/kernels.h"

namespace hvd::reference {

// How an element is computed: floats narrower than float32 in float32, all integers in 64 bits.
template <class Element, class Value, Value (*widen)(Element), Element (*narrow)(Value)>
struct Scalar {
  using ElementType = Element;
  using ValueType = Value;
  static Value load(const std::byte* from) {
    Element element;
    std::memcpy(&element, from, sizeof element);
    return widen(element);
  }
  static void store(std::byte* to, Value value) {
    const Element element = narrow(value);
    std::memcpy(to, &element, sizeof element);
  }
};
template <class To, class From>
To cast(From value) {
  return static_cast<To>(value);
}
template <class E>
using FloatScalar = Scalar<E, E, cast<E, E>, cast<E, E>>;
template <class E>
using IntegerScalar = Scalar<E, int64_t, cast<int64_t, E>, cast<E, int64_t>>;
inline int64_t truth_of(uint8_t value) { return value != 0; }
inline uint8_t byte_of(int64_t value) { return value != 0; }

template <class Body>
void with_scalar(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::u8: return body(IntegerScalar<uint8_t>{});
    case DType::i8: return body(IntegerScalar<int8_t>{});
    case DType::u16: return body(IntegerScalar<uint16_t>{});
    case DType::i16: return body(IntegerScalar<int16_t>{});
    case DType::i32: return body(IntegerScalar<int32_t>{});
    case DType::i64: return body(IntegerScalar<int64_t>{});
    case DType::f16: return body(Scalar<uint16_t, float, half_to_float, float_to_half>{});
    case DType::bf16: return body(Scalar<uint16_t, float, bfloat16_to_float, float_to_bfloat16>{});
    case DType::f32:
    case DType::c64: return body(FloatScalar<float>{});
    case DType::f64:
    case DType::c128: return body(FloatScalar<double>{});
    case DType::boolean: return body(Scalar<uint8_t, int64_t, truth_of, byte_of>{});
  }
}

template <class V>
V combine(ReduceOp op, V a, V b) {
  if constexpr (std::is_integral_v<V>) {
    if (op == ReduceOp::sum) return static_cast<V>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    if (op == ReduceOp::product) return static_cast<V>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    if (op == ReduceOp::bit_and) return static_cast<V>(a & b);
    if (op == ReduceOp::bit_or) return static_cast<V>(a | b);
    if (op == ReduceOp::bit_xor) return static_cast<V>(a ^ b);
  } else {
    if (op == ReduceOp::sum) return a + b;
    if (op == ReduceOp::product) return a * b;
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  if (op == ReduceOp::min) return a < b ? a : b;
  return a > b ? a : b;
}

template <class S>
typename S::ValueType scaled(typename S::ValueType value, double factor) {
  using V = typename S::ValueType;
  using E = typename S::ElementType;
  if constexpr (std::is_integral_v<V>) {
    const auto product = static_cast<long double>(static_cast<double>(static_cast<E>(value)) * factor);
    if (std::isnan(product)) return std::numeric_limits<E>::min();
    if (product <= static_cast<long double>(std::numeric_limits<E>::min())) return std::numeric_limits<E>::min();
    if (product >= static_cast<long double>(std::numeric_limits<E>::max())) return std::numeric_limits<E>::max();
    return static_cast<V>(product);
  } else {
    return value * static_cast<V>(factor);
  }
}

inline size_t parts_of(DType dtype) { return dtype == DType::c64 || dtype == DType::c128 ? 2 : 1; }

using Sources = std::vector<const std::byte*>;

inline std::vector<std::byte> expected_reduce(DType dtype, ReduceOp op, const Sources& sources, size_t count,
                                              double factor) {
  std::vector<std::byte> result(count * size_of(dtype));
  with_scalar(dtype, [&]<class S>(S) {
    for (size_t offset = 0; offset < result.size(); offset += sizeof(typename S::ElementType)) {
      auto value = S::load(sources[0] + offset);
      for (size_t k = 1; k < sources.size(); ++k) value = combine(op, value, S::load(sources[k] + offset));
      if (factor != 1.0) value = scaled<S>(value, factor);
      if (sources.size() == 1 && factor == 1.0 && dtype != DType::boolean) {
        std::memcpy(&result[offset], sources[0] + offset, sizeof(typename S::ElementType));
      } else {
        S::store(&result[offset], value);
      }
    }
  });
  return result;
}

inline bool is_nan(DType dtype, const std::byte* element) {
  bool nan = false;
  with_scalar(dtype, [&]<class S>(S) {
    if constexpr (std::is_floating_point_v<typename S::ValueType>) nan = std::isnan(S::load(element));
  });
  return nan;
}

// The same bits, except that where arithmetic made a NaN any NaN will do.
inline testing::AssertionResult same_bits(DType dtype, const std::byte* actual, const std::byte* expected, size_t count,
                                          bool any_nan) {
  if (count == 0 || std::memcmp(actual, expected, count * size_of(dtype)) == 0) return testing::AssertionSuccess();
  const size_t part = size_of(dtype) / parts_of(dtype);
  for (size_t i = 0; i < count * parts_of(dtype); ++i) {
    if (std::memcmp(actual + i * part, expected + i * part, part) == 0) continue;
    if (any_nan && is_nan(dtype, actual + i * part) && is_nan(dtype, expected + i * part)) continue;
    uint64_t bits[2] = {};
    std::memcpy(&bits[0], actual + i * part, part);
    std::memcpy(&bits[1], expected + i * part, part);
    return testing::AssertionFailure() << name_of(dtype) << " part " << i << " is " << std::hex << bits[0] << ", not "
                                       << bits[1];
  }
  return testing::AssertionSuccess();
}

// An array at some distance from an aligned address, with guards around it that must not change.
class Array {
 public:
  Array(DType dtype, size_t count, size_t misalignment)
      : bytes_(count * size_of(dtype)), memory_(bytes_ + 3 * kGuard, kUntouched) {
    const auto start = reinterpret_cast<uintptr_t>(memory_.data()) + kGuard;
    data_ = memory_.data() + kGuard + (-start % kGuard) + misalignment * size_of(dtype) % kGuard;
  }
  std::byte* data() { return data_; }
  bool guards_intact() const {
    const auto intact = [](std::byte byte) { return byte == kUntouched; };
    const auto start = memory_.begin() + (data_ - memory_.data());
    return std::all_of(memory_.begin(), start, intact) &&
           std::all_of(start + static_cast<ptrdiff_t>(bytes_), memory_.end(), intact);
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr std::byte kUntouched{0xa5};
  size_t bytes_;
  std::vector<std::byte> memory_;
  std::byte* data_;
};

// Ordinary numbers, or any bits at all.
inline void fill(DType dtype, Array& array, size_t count, bool any_bits, std::mt19937_64& random) {
  if (any_bits) {
    for (size_t i = 0; i < count * size_of(dtype); ++i) array.data()[i] = static_cast<std::byte>(random());
    return;
  }
  with_scalar(dtype, [&]<class S>(S) {
    for (size_t offset = 0; offset < count * size_of(dtype); offset += sizeof(typename S::ElementType)) {
      const auto value = static_cast<int64_t>(random() % 201) - 100;
      S::store(array.data() + offset, static_cast<typename S::ValueType>(value) / 2);
    }
  });
}

}  // namespace hvd::reference
