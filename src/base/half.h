// float16 and bfloat16 as bit patterns, to and from float32: rounded to nearest even, NaNs stay NaNs (quiet, with the
// leading bits of their payload), exactly as F16C and NEON convert. Computed without denormal float32 operands, so a
// host that flushes those to zero gets the same bits.
// Always inlined: files compiled for newer CPUs use these too, and other files must not link to that code.
// Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace hvd {

[[gnu::always_inline]] constexpr float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude > 0x7c00) return __builtin_bit_cast(float, sign | 0x7fc00000 | magnitude << 13);
  if (magnitude == 0x7c00) return __builtin_bit_cast(float, sign | 0x7f800000);
  if (magnitude >= 0x0400) return __builtin_bit_cast(float, sign | ((magnitude << 13) + (uint32_t{127 - 15} << 23)));
  const float value = static_cast<float>(magnitude) * 0x1p-24f;  // zero or denormal
  return sign != 0 ? -value : value;
}

[[gnu::always_inline]] constexpr uint16_t float_to_half(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half = 0;
  if (magnitude > 0x7f800000) {
    half = 0x7e00 | (magnitude >> 13 & 0x3ff);
  } else if (magnitude >= 0x477ff000) {  // 65520 and more round to infinity
    half = 0x7c00;
  } else if (magnitude >= 0x38800000) {  // 2^-14: the smallest normal half
    half = (magnitude - (uint32_t{127 - 15} << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  } else {  // 0.5f has the unit in the last place of a denormal half, 2^-24: the addition rounds there
    half = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, magnitude) + 0.5f) - 0x3f000000;
  }
  return static_cast<uint16_t>(sign | half);
}

[[gnu::always_inline]] constexpr float bfloat16_to_float(uint16_t bfloat) {
  return __builtin_bit_cast(float, uint32_t{bfloat} << 16);
}

[[gnu::always_inline]] constexpr uint16_t float_to_bfloat16(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>((is_nan ? bits | 0x00400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace hvd
