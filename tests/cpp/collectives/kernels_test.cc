#include "collectives/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "collectives/kernels_reference.h"
#include "collectives/kernels_targets.h"

namespace hvd {
namespace {

using namespace reference;

constexpr size_t kLengths[] = {0, 1, 2, 7, 31, 32, 33, 127, 1000, 4097};

struct Case {
  const Kernels* kernels;
  DType dtype;
};

class KernelsTest : public testing::TestWithParam<Case> {
 protected:
  const Kernels& kernels_ = *GetParam().kernels;
  const DType dtype_ = GetParam().dtype;
  std::mt19937_64 random_{static_cast<uint64_t>(GetParam().dtype) + 1};

  std::vector<Array> make_arrays(size_t arrays, size_t count) {
    std::vector<Array> result;
    const size_t misalignment = random_() % 2 * (random_() % 64);
    for (size_t k = 0; k < arrays; ++k) result.emplace_back(dtype_, count, misalignment + k * (random_() % 2));
    const bool any_bits = random_() % 2 == 0;
    for (Array& array : result) fill(dtype_, array, count, any_bits, random_);
    return result;
  }

  void check_reduce(ReduceOp op, size_t source_count, size_t count, double factor, bool in_place, bool with_copy,
                    StoreHint store) {
    std::vector<Array> arrays = make_arrays(source_count, count);
    const Sources sources = pointers_to(arrays);
    const std::vector<std::byte> expected = expected_reduce(dtype_, op, sources, count, factor);
    Array separate(dtype_, count, random_() % 5);
    Array copy(dtype_, count, random_() % 70);
    Array& destination = in_place ? arrays[random_() % source_count] : separate;
    reduce(kernels_, dtype_, op, destination.data(), sources, count, factor, with_copy ? copy.data() : nullptr, store);
    const bool any_nan = op == ReduceOp::sum || op == ReduceOp::product;
    ASSERT_TRUE(same_bits(dtype_, destination.data(), expected.data(), count, any_nan));
    ASSERT_TRUE(destination.guards_intact());
    if (with_copy) {
      ASSERT_EQ(std::memcmp(copy.data(), destination.data(), expected.size()), 0);
    }
    ASSERT_TRUE(copy.guards_intact());
  }

  static Sources pointers_to(std::vector<Array>& arrays) {
    Sources pointers;
    for (Array& array : arrays) pointers.push_back(array.data());
    return pointers;
  }
};

class ScaleKernelsTest : public KernelsTest {};  // dtypes that can be scaled
class FloatKernelsTest : public KernelsTest {};  // real floats

TEST_P(KernelsTest, ReduceIsTheFoldFromLeftToRight) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product, ReduceOp::bit_and,
                            ReduceOp::bit_or, ReduceOp::bit_xor}) {
    if (!can_reduce(dtype_, op)) continue;
    for (size_t sources = 1; sources <= 9; ++sources) {
      for (const size_t count : kLengths) {
        for (const bool in_place : {false, true}) {
          for (const bool with_copy : {false, true}) {
            SCOPED_TRACE(testing::Message() << name_of(op) << " of " << sources << ", " << count
                                            << " elements, in place " << in_place << ", copy " << with_copy);
            check_reduce(op, sources, count, 1.0, in_place, with_copy, StoreHint::cached);
            check_reduce(op, sources, count, 1.0, in_place, with_copy, StoreHint::streaming);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(ScaleKernelsTest, ReduceAppliesTheFactorToTheResult) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double factor : {0.5, 1.0 / 3, -2.75, 0.0, 1e30, -1e30, nan}) {
    for (const size_t sources : {1, 2, 3, 4, 6}) {
      for (const size_t count : kLengths) {
        SCOPED_TRACE(testing::Message() << "factor " << factor << ", " << sources << " sources, " << count);
        check_reduce(ReduceOp::sum, sources, count, factor, count % 2 == 0, true, StoreHint::cached);
        check_reduce(ReduceOp::sum, sources, count, factor, count % 2 == 0, true, StoreHint::streaming);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(ScaleKernelsTest, ScaleMultipliesEachElement) {
  for (const double factor : {1.0, 0.5, -1.0 / 3, 1e30}) {
    for (const size_t count : kLengths) {
      for (const StoreHint store : {StoreHint::cached, StoreHint::streaming}) {
        for (const bool in_place : {false, true}) {
          std::vector<Array> source = make_arrays(1, count);
          const auto expected = expected_reduce(dtype_, ReduceOp::sum, pointers_to(source), count, factor);
          Array separate(dtype_, count, random_() % 70);
          Array& destination = in_place ? source[0] : separate;
          scale(kernels_, dtype_, destination.data(), source[0].data(), count, factor, store);
          ASSERT_TRUE(same_bits(dtype_, destination.data(), expected.data(), count, true)) << count << " * " << factor;
          ASSERT_TRUE(destination.guards_intact());
        }
      }
    }
  }
}

TEST_P(FloatKernelsTest, DotAddsInTheSameOrderOnEveryCpu) {
  for (const size_t count : kLengths) {
    std::vector<Array> arrays(make_arrays(2, count));
    for (Array& array : arrays) fill(dtype_, array, count, false, random_);
    double lanes[16] = {};
    with_scalar(dtype_, [&]<class S>(S) {
      for (size_t i = 0; i < count; ++i) {
        const size_t offset = i * sizeof(typename S::ElementType);
        const auto third = S::load(arrays[0].data() + offset) / 3;  // so that the order matters
        S::store(arrays[0].data() + offset, third);
        lanes[i % 16] += static_cast<double>(S::load(arrays[0].data() + offset)) *
                         static_cast<double>(S::load(arrays[1].data() + offset));
      }
    });
    for (size_t half = 8; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    const double result = dot(kernels_, dtype_, arrays[0].data(), arrays[1].data(), count);
    ASSERT_EQ(std::bit_cast<uint64_t>(result), std::bit_cast<uint64_t>(lanes[0])) << count;
  }
}

TEST_P(FloatKernelsTest, WeightedSumAddsFromLeftToRight) {
  for (const size_t sources : {1, 2, 3, 5}) {
    for (const size_t count : kLengths) {
      std::vector<Array> arrays = make_arrays(sources, count);
      std::vector<double> weights;
      for (size_t k = 0; k < sources; ++k) weights.push_back(1.0 / static_cast<double>(3 + 2 * k));
      std::vector<std::byte> expected(count * size_of(dtype_));
      with_scalar(dtype_, [&]<class S>(S) {
        for (size_t offset = 0; offset < expected.size(); offset += sizeof(typename S::ElementType)) {
          auto sum = scaled<S>(S::load(arrays[0].data() + offset), weights[0]);
          for (size_t k = 1; k < sources; ++k) sum += scaled<S>(S::load(arrays[k].data() + offset), weights[k]);
          S::store(&expected[offset], sum);
        }
      });
      std::byte* destination = arrays[sources - 1].data();
      weighted_sum(kernels_, dtype_, destination, pointers_to(arrays), weights, count);
      ASSERT_TRUE(same_bits(dtype_, destination, expected.data(), count, true)) << sources << " x " << count;
      ASSERT_TRUE(arrays[sources - 1].guards_intact());
    }
  }
}

std::vector<Case> cases_where(bool (*wanted)(DType)) {
  std::vector<Case> cases;
  for (const Kernels* kernels : supported_kernels()) {
    for (size_t i = 0; i < kDTypeCount; ++i) {
      if (wanted(static_cast<DType>(i))) cases.push_back({kernels, static_cast<DType>(i)});
    }
  }
  return cases;
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.kernels->name + std::string("_") + std::string(name_of(info.param.dtype));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

void PrintTo(const Case& value, std::ostream* out) { *out << value.kernels->name << " " << name_of(value.dtype); }

INSTANTIATE_TEST_SUITE_P(Cpus, KernelsTest, testing::ValuesIn(cases_where([](DType) { return true; })), name_of_case);
INSTANTIATE_TEST_SUITE_P(Cpus, ScaleKernelsTest, testing::ValuesIn(cases_where(can_scale)), name_of_case);
INSTANTIATE_TEST_SUITE_P(Cpus, FloatKernelsTest, testing::ValuesIn(cases_where([](DType dtype) {
                           return can_reduce(dtype, ReduceOp::adasum);
                         })),
                         name_of_case);

// Every float16 and bfloat16 through the vector conversions of every CPU kind, and every rounding case back.
TEST(KernelsConversionTest, AllHalvesTimesOneAndAHalf) {
  for (const Kernels* kernels : supported_kernels()) {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      std::vector<uint16_t> values(65536);
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i);
      const auto* source = reinterpret_cast<const std::byte*>(values.data());
      for (const double factor : {1.5, 1 + 0x1p-12, 0.25, 1 + 0x1p-23, 0x1p-100, 0x1p120}) {
        std::vector<uint16_t> result(values.size());
        scale(*kernels, dtype, reinterpret_cast<std::byte*>(result.data()), source, values.size(), factor,
              StoreHint::cached);
        for (size_t i = 0; i < values.size(); ++i) {
          const auto f = static_cast<float>(factor);
          const uint16_t expected = dtype == DType::f16 ? float_to_half(half_to_float(values[i]) * f)
                                                        : float_to_bfloat16(bfloat16_to_float(values[i]) * f);
          ASSERT_EQ(result[i], expected) << kernels->name << " " << name_of(dtype) << " " << i << " * " << factor;
        }
      }
    }
  }
}

TEST(KernelsMinMaxTest, TheFirstNanWins) {
  const uint32_t first = 0x7fc00001;
  const uint32_t second = 0xffc00002;
  for (const Kernels* kernels : supported_kernels()) {
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
      std::vector<uint32_t> numbers(37, std::bit_cast<uint32_t>(1.0f));
      std::vector<uint32_t> some_nan(37, first);
      std::vector<uint32_t> other_nan(37, second);
      const Sources sources = {
          reinterpret_cast<std::byte*>(numbers.data()), reinterpret_cast<std::byte*>(some_nan.data()),
          reinterpret_cast<std::byte*>(other_nan.data()), reinterpret_cast<std::byte*>(numbers.data())};
      std::vector<uint32_t> result(37);
      reduce(*kernels, DType::f32, op, reinterpret_cast<std::byte*>(result.data()), sources, 37, 1.0, nullptr,
             StoreHint::cached);
      EXPECT_EQ(result, some_nan) << kernels->name;
    }
  }
}

TEST(KernelsScaleTest, IntegersBeyondTheRangeBecomeItsEnds) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  const std::vector<int64_t> values = {kMax, kMin, kMax - 1, 1, -1, int64_t{1} << 62, -(int64_t{1} << 62), 0, 3, -3, 7};
  for (const Kernels* kernels : supported_kernels()) {
    const auto times = [&](double factor) {
      std::vector<int64_t> result(values.size());
      scale(*kernels, DType::i64, reinterpret_cast<std::byte*>(result.data()),
            reinterpret_cast<const std::byte*>(values.data()), values.size(), factor, StoreHint::cached);
      return result;
    };
    EXPECT_EQ(times(2), (std::vector<int64_t>{kMax, kMin, kMax, 2, -2, kMax, kMin, 0, 6, -6, 14})) << kernels->name;
    EXPECT_EQ(times(-1),
              (std::vector<int64_t>{kMin, kMax, kMin, -1, 1, -(int64_t{1} << 62), int64_t{1} << 62, 0, -3, 3, -7}));
    EXPECT_EQ(times(0.5)[8], 1);
    EXPECT_EQ(times(0.5)[9], -1);
  }
}

TEST(KernelsCopyTest, CopiesBytesAtAnyAlignment) {
  std::mt19937_64 random(7);
  std::vector<size_t> lengths = {2047, 2048, 2049, 5000, 16383, 16384, 16385};
  for (size_t bytes = 0; bytes < 700; bytes += bytes < 140 ? 1 : 61) lengths.push_back(bytes);
  for (const Kernels* kernels : supported_kernels()) {
    for (const StoreHint store : {StoreHint::cached, StoreHint::streaming}) {
      for (const size_t bytes : lengths) {
        for (const size_t misalignment : {0, 1, 16, 63}) {
          Array source(DType::u8, bytes, random() % 64);
          Array destination(DType::u8, bytes, misalignment);
          fill(DType::u8, source, bytes, true, random);
          copy(*kernels, destination.data(), source.data(), bytes, store);
          ASSERT_EQ(std::memcmp(destination.data(), source.data(), bytes), 0) << kernels->name << " " << bytes;
          ASSERT_TRUE(destination.guards_intact()) << kernels->name << " " << bytes;
        }
      }
    }
  }
}

TEST(KernelsTableTest, SaysWhatEachDtypeCanDo) {
  EXPECT_TRUE(can_reduce(DType::c64, ReduceOp::sum));
  EXPECT_TRUE(can_reduce(DType::c128, ReduceOp::average));
  EXPECT_FALSE(can_reduce(DType::c64, ReduceOp::max));
  EXPECT_TRUE(can_reduce(DType::boolean, ReduceOp::product));
  EXPECT_FALSE(can_reduce(DType::boolean, ReduceOp::average));
  EXPECT_FALSE(can_reduce(DType::u16, ReduceOp::average));
  EXPECT_TRUE(can_reduce(DType::u16, ReduceOp::sum));
  EXPECT_TRUE(can_reduce(DType::bf16, ReduceOp::adasum));
  EXPECT_FALSE(can_reduce(DType::i32, ReduceOp::adasum));
  EXPECT_FALSE(can_scale(DType::i16));
  EXPECT_TRUE(can_scale(DType::i64));
}

TEST(KernelsTableTest, PublicFunctionsUseTheBestOfThisCpu) {
  const std::vector<float> a = {1, 2, 3};
  const std::vector<float> b = {10, 20, 30};
  std::vector<float> result(3);
  std::vector<float> second(3);
  const Sources sources = {reinterpret_cast<const std::byte*>(a.data()), reinterpret_cast<const std::byte*>(b.data())};
  auto* destination = reinterpret_cast<std::byte*>(result.data());
  reduce(DType::f32, ReduceOp::average, destination, sources, 3, 0.5, reinterpret_cast<std::byte*>(second.data()));
  EXPECT_EQ(result, (std::vector<float>{5.5, 11, 16.5}));
  EXPECT_EQ(second, result);
  scale(DType::f32, destination, sources[1], 3, 0.1);
  EXPECT_EQ(result, (std::vector<float>{10 * 0.1f, 20 * 0.1f, 30 * 0.1f}));
  copy(destination, sources[0], 12);
  EXPECT_EQ(result, a);
  EXPECT_EQ(dot(DType::f32, sources[0], sources[1], 3), 140.0);
  weighted_sum(DType::f32, destination, sources, std::vector{2.0, 0.5}, 3);
  EXPECT_EQ(result, (std::vector<float>{7, 14, 21}));
}

}  // namespace
}  // namespace hvd
