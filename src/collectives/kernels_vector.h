// Registers and element types for kernels_simd.h, in GCC's vector extensions: one source for every vector width.
// An element type defines how its elements are moved between memory and a register block (Vec) or a single value (One).
// Everything is in an unnamed namespace, for the reason given in kernels_simd.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/half.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace hvd {
namespace {

#if defined(__AVX512F__)
constexpr size_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr size_t kVectorBytes = 32;
#else
constexpr size_t kVectorBytes = 16;
#endif

template <class E, size_t bytes>
struct VectorType {
  typedef E Type __attribute__((vector_size(bytes)));
};
template <class E, size_t bytes = kVectorBytes>
using Vector = typename VectorType<E, bytes>::Type;

using Floats = Vector<float>;
using Words = Vector<uint32_t>;                     // the bits of Floats
using Halves = Vector<uint16_t, kVectorBytes / 2>;  // as many as Floats
using SignedWords = Vector<int32_t>;
using Doubles = Vector<double>;
using HalfFloats = Vector<float, kVectorBytes / 2>;  // as many as Doubles

template <class V>
V load(const std::byte* from) {
  V value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

template <class V>
void store(std::byte* to, V value) {
  __builtin_memcpy(to, &value, sizeof value);
}

// Bypasses the caches if the CPU can; `to` is aligned to the vector.
template <class V>
void stream(std::byte* to, V value) {
#if defined(__x86_64__)
  if constexpr (sizeof(V) == 8) {
    _mm_stream_si64(reinterpret_cast<long long*>(to), __builtin_bit_cast(long long, value));
  } else if constexpr (sizeof(V) == 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), __builtin_bit_cast(__m128i, value));
  }
#if defined(__AVX2__)
  else if constexpr (sizeof(V) == 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), __builtin_bit_cast(__m256i, value));
  }
#endif
#if defined(__AVX512F__)
  else {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), __builtin_bit_cast(__m512i, value));
  }
#endif
#else
  store(to, value);
#endif
}

// Streaming stores are weakly ordered; call this before the data are announced to another core.
inline void finish_streaming() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// __builtin_convertvector, which GCC 12 splits into halves if the result is wider than the argument.
inline Doubles widen(HalfFloats values) {
#if defined(__AVX512F__)
  return __builtin_bit_cast(Doubles, _mm512_maskz_cvtps_pd(0xff, __builtin_bit_cast(__m256, values)));
#elif defined(__AVX2__)
  return __builtin_bit_cast(Doubles, _mm256_cvtps_pd(__builtin_bit_cast(__m128, values)));
#else
  return __builtin_convertvector(values, Doubles);
#endif
}
inline Words widen(Halves values) {
#if defined(__AVX512F__)
  return __builtin_bit_cast(Words, _mm512_maskz_cvtepu16_epi32(0xffff, __builtin_bit_cast(__m256i, values)));
#elif defined(__AVX2__)
  return __builtin_bit_cast(Words, _mm256_cvtepu16_epi32(__builtin_bit_cast(__m128i, values)));
#else
  return __builtin_convertvector(values, Words);
#endif
}

inline Floats widen_halves(Halves halves) {
#if defined(__AVX512F__)
  return __builtin_bit_cast(Floats, _mm512_maskz_cvtph_ps(0xffff, __builtin_bit_cast(__m256i, halves)));
#elif defined(__F16C__)
  return __builtin_bit_cast(Floats, _mm256_cvtph_ps(__builtin_bit_cast(__m128i, halves)));
#elif defined(__aarch64__)
  return __builtin_bit_cast(Floats, vcvt_f32_f16(__builtin_bit_cast(float16x4_t, halves)));
#else  // half_to_float() on vectors; signed words, because SSE2 compares no others
  const auto bits = __builtin_bit_cast(SignedWords, widen(halves));
  const SignedWords magnitude = bits & 0x7fff;
  const Floats tiny = __builtin_convertvector(magnitude, Floats) * 0x1p-24f;
  SignedWords result = (magnitude << 13) + ((127 - 15) << 23);
  result = magnitude < 0x0400 ? __builtin_bit_cast(SignedWords, tiny) : result;
  result = magnitude >= 0x7c00 ? 0x7f800000 | magnitude << 13 : result;
  result = magnitude > 0x7c00 ? 0x00400000 | result : result;
  return __builtin_bit_cast(Floats, result | (bits & 0x8000) << 16);
#endif
}

inline Halves narrow_to_halves(Floats values) {
#if defined(__AVX512F__)
  return __builtin_bit_cast(
      Halves, _mm512_maskz_cvtps_ph(0xffff, __builtin_bit_cast(__m512, values), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  return __builtin_bit_cast(Halves, _mm256_cvtps_ph(__builtin_bit_cast(__m256, values), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__aarch64__)
  return __builtin_bit_cast(Halves, vcvt_f16_f32(__builtin_bit_cast(float32x4_t, values)));
#else  // float_to_half() on vectors
  const SignedWords bits = __builtin_bit_cast(SignedWords, values);
  const SignedWords magnitude = bits & 0x7fffffff;
  const SignedWords rounded = (magnitude - ((127 - 15) << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  const SignedWords tiny = __builtin_bit_cast(SignedWords, __builtin_bit_cast(Floats, magnitude) + 0.5f) - 0x3f000000;
  SignedWords result = magnitude < 0x38800000 ? tiny : rounded;
  result = magnitude >= 0x477ff000 ? SignedWords{} + 0x7c00 : result;
  result = magnitude > 0x7f800000 ? 0x7e00 | (magnitude >> 13 & 0x3ff) : result;
  return __builtin_convertvector(__builtin_bit_cast(Words, result | (bits >> 16 & 0x8000)), Halves);
#endif
}

// float32 and float64.
template <class E>
struct Float {
  using Element = E;
  using Vec = Vector<E>;
  using One = E;
  static constexpr size_t kUnroll = 8;
  static Vec load(const std::byte* from) { return hvd::load<Vec>(from); }
  static Vec pack(Vec value) { return value; }
  static Vec scale(Vec value, double factor) { return value * static_cast<E>(factor); }
  static One load_one(const std::byte* from) { return hvd::load<E>(from); }
  static E pack(One value) { return value; }
  static One scale(One value, double factor) { return value * static_cast<E>(factor); }
};

// The 16-bit floats compute in float32.
struct Float16 {
  using Element = uint16_t;
  using Vec = Floats;
  using One = float;
  static constexpr size_t kUnroll = 8;
  static Vec load(const std::byte* from) { return widen_halves(hvd::load<Halves>(from)); }
  static Halves pack(Vec value) { return narrow_to_halves(value); }
  static Vec scale(Vec value, double factor) { return value * static_cast<float>(factor); }
  static One load_one(const std::byte* from) { return half_to_float(hvd::load<uint16_t>(from)); }
  static uint16_t pack(One value) { return float_to_half(value); }
  static One scale(One value, double factor) { return value * static_cast<float>(factor); }
  static Floats load_in_order(const std::byte* from) { return load(from); }
};

// Even elements in one vector, odd ones in the other: no element crosses a lane.
struct FloatPair {
  Floats even, odd;
};

struct Bfloat16 {
  using Element = uint16_t;
  using Vec = FloatPair;
  using One = float;
  static constexpr size_t kUnroll = 4;
  static Vec load(const std::byte* from) {
    const Words bits = hvd::load<Words>(from);
    return {__builtin_bit_cast(Floats, bits << 16), __builtin_bit_cast(Floats, bits & 0xffff0000)};
  }
  static Words pack(Vec value) { return round(value.even) >> 16 | (round(value.odd) & 0xffff0000); }
  static Vec scale(Vec value, double factor) {
    return {value.even * static_cast<float>(factor), value.odd * static_cast<float>(factor)};
  }
  static One load_one(const std::byte* from) { return bfloat16_to_float(hvd::load<uint16_t>(from)); }
  static uint16_t pack(One value) { return float_to_bfloat16(value); }
  static One scale(One value, double factor) { return value * static_cast<float>(factor); }
  static Floats load_in_order(const std::byte* from) {
    return __builtin_bit_cast(Floats, widen(hvd::load<Halves>(from)) << 16);
  }

 private:
  static Words round(Floats values) {
    const Words bits = __builtin_bit_cast(Words, values);
    return values != values ? bits | 0x00400000 : bits + 0x7fff + (bits >> 16 & 1);
  }
};

template <class E>
struct Integer {
  using Element = E;
  using Vec = Vector<E>;
  using One = E;
  static constexpr size_t kUnroll = 8;
  static Vec load(const std::byte* from) { return hvd::load<Vec>(from); }
  static Vec pack(Vec value) { return value; }
  [[gnu::noinline]] static Vec scale(Vec value, double factor) {           // too large to inline into every loop
    using Part = Vector<E, sizeof(Doubles) / sizeof(double) * sizeof(E)>;  // as many as Doubles
    for (size_t at = 0; at < sizeof value; at += sizeof(Part)) {
      std::byte* place = reinterpret_cast<std::byte*>(&value) + at;
      const Part part = hvd::load<Part>(place);
      const Doubles scaled = __builtin_convertvector(part, Doubles) * factor;
      const Doubles raised = scaled > kLow ? scaled : Doubles{} + kLow;
      Part result = __builtin_convertvector(raised < kBelow ? raised : Doubles{} + kBelow, Part);
      if constexpr (kBelow < kHigh) result = raised >= kHigh ? Part{} + kMax : result;
      hvd::store(place, result);
    }
    return value;
  }
  static One load_one(const std::byte* from) { return hvd::load<E>(from); }
  static E pack(One value) { return value; }
  static One scale(One value, double factor) {
    const double scaled = static_cast<double>(value) * factor;
    if (!(scaled > kLow)) return kMin;
    return scaled < kHigh ? static_cast<E>(scaled) : kMax;
  }

 private:
  // Scaling truncates and saturates; NaN becomes the smallest value.
  static constexpr E kMin = std::numeric_limits<E>::min();
  static constexpr E kMax = std::numeric_limits<E>::max();
  static constexpr double kLow = static_cast<double>(kMin);
  static constexpr double kHigh = static_cast<double>(kMax);  // of int64: rounded up to 2^63
  static constexpr double kBelow = sizeof(E) == 8 ? 0x1.fffffffffffffp62 : kHigh;
};

// One byte each; any bit means true, and it is written as 0 or 1.
struct Boolean {
  using Element = uint8_t;
  using Vec = Vector<uint8_t>;
  using One = uint8_t;
  static constexpr size_t kUnroll = 8;
  static Vec load(const std::byte* from) { return __builtin_bit_cast(Vec, hvd::load<Vec>(from) != 0) & 1; }
  static Vec pack(Vec value) { return value; }
  static One load_one(const std::byte* from) { return hvd::load<uint8_t>(from) != 0; }
  static uint8_t pack(One value) { return value; }
};

}  // namespace
}  // namespace hvd
