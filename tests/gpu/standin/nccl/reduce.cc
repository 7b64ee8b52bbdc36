#include "nccl/reduce.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "core/half.h"

namespace standin::nccl {
namespace {

// How elements of a type are read, and written with one rounding; arithmetic is done in `Value`.
template <typename T>
struct Plain {
  using Stored = T;
  using Value = T;
  static Value load(Stored stored) { return stored; }
  static Stored round(Value value) { return value; }
};
struct Half {
  using Stored = uint16_t;
  using Value = float;
  static float load(uint16_t stored) { return from_half(stored); }
  static uint16_t round(float value) { return to_half(value); }
};
struct Bfloat {
  using Stored = uint16_t;
  using Value = float;
  static float load(uint16_t stored) { return from_bfloat(stored); }
  static uint16_t round(float value) { return to_bfloat(value); }
};

template <typename Value>
Value combine(int op, Value a, Value b) {
  if constexpr (std::is_floating_point_v<Value>) {
    if (op == kProd) return a * b;
    if (op == kMax) return std::fmax(a, b);
    if (op == kMin) return std::fmin(a, b);
    return a + b;
  } else {
    using Wide = std::make_unsigned_t<std::common_type_t<Value, int>>;  // wraps around without undefined behaviour
    if (op == kProd) return static_cast<Value>(static_cast<Wide>(a) * static_cast<Wide>(b));
    if (op == kMax) return a > b ? a : b;
    if (op == kMin) return a < b ? a : b;
    return static_cast<Value>(static_cast<Wide>(a) + static_cast<Wide>(b));
  }
}

template <typename Kind>
typename Kind::Value load_from(const void* bytes, size_t index) {
  typename Kind::Stored stored;
  std::memcpy(&stored, static_cast<const char*>(bytes) + index * sizeof stored, sizeof stored);
  return Kind::load(stored);
}

template <typename Kind>
void reduce_kind(const Reduction& reduction, std::span<const char* const> inputs, std::span<const Reduction> scales,
                 size_t count, char* result) {
  using Value = typename Kind::Value;
  constexpr bool kFloats = std::is_floating_point_v<Value>;
  const auto ranks = inputs.size();
  const bool average = !reduction.scaled && reduction.op == kAvg;
  const int op = reduction.scaled || average ? kSum : reduction.op;
  for (size_t i = 0; i < count; ++i) {
    Value sum{};
    for (size_t r = 0; r < ranks; ++r) {
      Value value = load_from<Kind>(inputs[r], i);
      if (reduction.scaled)
        value = Kind::load(Kind::round(combine<Value>(kProd, value, load_from<Kind>(scales[r].scale, 0))));
      if constexpr (kFloats) {  // averages multiply by 1/n, rounded to the type, and then sum
        if (average)
          value = Kind::load(Kind::round(value * Kind::load(Kind::round(Value(1) / static_cast<Value>(ranks)))));
      }
      sum = r == 0 ? value : Kind::load(Kind::round(combine<Value>(op, sum, value)));
    }
    if constexpr (!kFloats) {
      if (average) sum = static_cast<Value>(sum / static_cast<Value>(ranks));
    }
    const typename Kind::Stored stored = Kind::round(sum);
    std::memcpy(result + i * sizeof stored, &stored, sizeof stored);
  }
}

}  // namespace

size_t size_of(int type) {
  static constexpr size_t kSizes[kTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return type >= 0 && type < kTypes ? kSizes[type] : 0;
}

void reduce(int type, const Reduction& reduction, std::span<const char* const> inputs,
            std::span<const Reduction> scales, size_t count, char* result) {
  switch (type) {
    case kInt8: return reduce_kind<Plain<int8_t>>(reduction, inputs, scales, count, result);
    case kUint8: return reduce_kind<Plain<uint8_t>>(reduction, inputs, scales, count, result);
    case kInt32: return reduce_kind<Plain<int32_t>>(reduction, inputs, scales, count, result);
    case kUint32: return reduce_kind<Plain<uint32_t>>(reduction, inputs, scales, count, result);
    case kInt64: return reduce_kind<Plain<int64_t>>(reduction, inputs, scales, count, result);
    case kUint64: return reduce_kind<Plain<uint64_t>>(reduction, inputs, scales, count, result);
    case kFloat16: return reduce_kind<Half>(reduction, inputs, scales, count, result);
    case kFloat32: return reduce_kind<Plain<float>>(reduction, inputs, scales, count, result);
    case kFloat64: return reduce_kind<Plain<double>>(reduction, inputs, scales, count, result);
    case kBfloat16: return reduce_kind<Bfloat>(reduction, inputs, scales, count, result);
    default: return;
  }
}

}  // namespace standin::nccl
