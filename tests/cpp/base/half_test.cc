#include "base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace hvd {
namespace {

// A 16-bit float format by its definition in IEEE 754.
struct Format {
  int exponent_bits;
  int fraction_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint16_t infinity() const { return static_cast<uint16_t>(((1 << exponent_bits) - 1) << fraction_bits); }
  bool is_nan(uint16_t bits) const { return (bits & 0x7fff) > infinity(); }

  double value_of(uint16_t bits) const {  // of a finite one
    const int exponent = (bits & 0x7fff) >> fraction_bits;
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const double magnitude = exponent == 0
                                 ? std::ldexp(fraction, 1 - bias() - fraction_bits)
                                 : std::ldexp(fraction + (1 << fraction_bits), exponent - bias() - fraction_bits);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
  }

  // The nearest, of two as near the even one. Beyond the largest finite value the next one would be where infinity is.
  uint16_t nearest_to(double value) const {
    const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
    const double magnitude = std::fabs(value);
    const double limit = 2 * value_of(static_cast<uint16_t>((infinity() & ~((1 << fraction_bits) - 1)) -
                                                            (1 << fraction_bits)));  // 2^(largest exponent + 1)
    uint16_t low = 0;
    uint16_t high = infinity();
    while (high - low > 1) {
      const auto middle = static_cast<uint16_t>((low + high) / 2);
      (value_of(middle) <= magnitude ? low : high) = middle;
    }
    const double above = high == infinity() ? limit : value_of(high);
    const double down = magnitude - value_of(low);
    const double up = above - magnitude;
    const uint16_t chosen = down < up || (down == up && low % 2 == 0) ? low : high;
    return sign | chosen;
  }
};

struct Conversion {
  const char* name;
  Format format;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
};

void PrintTo(const Conversion& conversion, std::ostream* out) { *out << conversion.name; }

class HalfTest : public testing::TestWithParam<Conversion> {
 protected:
  // Checks the narrowing of one bit pattern.
  void expect_nearest(uint32_t bits) const {
    const auto& [name, format, widen, narrow] = GetParam();
    const auto value = std::bit_cast<float>(bits);
    const uint16_t narrowed = narrow(value);
    if (std::isnan(value)) {
      const auto payload = static_cast<uint16_t>(bits >> (23 - format.fraction_bits));
      const auto quiet = static_cast<uint16_t>(1 << (format.fraction_bits - 1));
      const auto fraction = static_cast<uint16_t>((1 << format.fraction_bits) - 1);
      ASSERT_EQ(narrowed, (bits >> 16 & 0x8000) | format.infinity() | quiet | (payload & fraction)) << std::hex << bits;
    } else if (std::isinf(value)) {
      ASSERT_EQ(narrowed, (bits >> 16 & 0x8000) | format.infinity());
    } else {
      ASSERT_EQ(narrowed, format.nearest_to(static_cast<double>(value))) << std::hex << bits;
    }
  }
};

TEST_P(HalfTest, EveryValueWidensExactly) {
  const auto& [name, format, widen, narrow] = GetParam();
  for (uint32_t i = 0; i <= 0xffff; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = widen(bits);
    ASSERT_EQ(std::signbit(value), bits >= 0x8000) << bits;
    if (format.is_nan(bits)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else if ((bits & 0x7fff) == format.infinity()) {
      ASSERT_TRUE(std::isinf(value)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(value), format.value_of(bits)) << bits;
    }
  }
}

TEST_P(HalfTest, EveryValueSurvivesTheRoundTripAndNansBecomeQuiet) {
  const auto& [name, format, widen, narrow] = GetParam();
  const auto quiet = static_cast<uint16_t>(1 << (format.fraction_bits - 1));
  for (uint32_t i = 0; i <= 0xffff; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    ASSERT_EQ(narrow(widen(bits)), format.is_nan(bits) ? bits | quiet : bits) << bits;
  }
}

TEST_P(HalfTest, NarrowingRoundsToNearestEven) {
  const auto& [name, format, widen, narrow] = GetParam();
  for (uint32_t i = 0; i <= 0xffff; ++i) {  // each value, halfway to the next, and the float32s beside those
    const auto bits = static_cast<uint16_t>(i);
    if (format.is_nan(bits)) continue;
    const auto value = std::bit_cast<uint32_t>(widen(bits));
    const double above = (bits & 0x7fff) == format.infinity() ? 0.0 : format.value_of(bits);
    const auto halfway = static_cast<float>(
        above + std::copysign(
                    std::ldexp(1.0, std::max(std::ilogb(above), 1 - format.bias()) - format.fraction_bits - 1), above));
    for (const uint32_t centre : {value, std::bit_cast<uint32_t>(halfway)}) {
      for (uint32_t near = centre - 1; near != centre + 2; ++near) expect_nearest(near);
    }
  }
}

TEST_P(HalfTest, NarrowingOfRandomBits) {
  std::mt19937 random(1);
  for (int i = 0; i < 300'000; ++i) expect_nearest(static_cast<uint32_t>(random()));
}

TEST_P(HalfTest, NarrowingOfNansWithLowPayloadStaysNan) {
  expect_nearest(0x7f800001);
  expect_nearest(0xff800001);
  expect_nearest(0x7fffffff);
}

INSTANTIATE_TEST_SUITE_P(Formats, HalfTest,
                         testing::Values(Conversion{"float16", {5, 10}, half_to_float, float_to_half},
                                         Conversion{"bfloat16", {8, 7}, bfloat16_to_float, float_to_bfloat16}),
                         [](const auto& conversion) { return conversion.param.name; });

}  // namespace
}  // namespace hvd
