// float16 and bfloat16 as bits, rounded to nearest even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace standin {

inline float from_half(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 0x3ff;
  float value = 0;
  if (exponent == 31) {
    value = fraction != 0 ? std::nanf("") : HUGE_VALF;
  } else {
    value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                          : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

inline uint16_t to_half(float value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const float size = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7fff);
  if (size >= 65520.0F) return static_cast<uint16_t>(sign | 0x7c00);
  int exponent = 0;
  if (size == 0) return sign;
  std::frexp(size, &exponent);                            // size = m * 2^exponent, 0.5 <= m < 1
  const int unit = exponent < -13 ? -24 : exponent - 11;  // the weight of the last bit
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, -unit)));
  // A carry out of the fraction moves into the exponent, as it should.
  return static_cast<uint16_t>(sign | (exponent < -13 ? steps : steps - 1024 + ((exponent + 14) << 10)));
}

inline float from_bfloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t to_bfloat(float value) {
  if (std::isnan(value)) return 0x7fff;
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace standin
