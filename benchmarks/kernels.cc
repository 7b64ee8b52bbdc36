// How fast are the kernels of src/collectives? Prints GB/s (bytes of the destination per second, the best of several
// rounds) for each kernel and array size, for every CPU kind this machine supports, beside a plain loop a[i] = b[i] +
// c[i] that the compiler vectorised for AVX2. The second table is the time of tiny calls.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "collectives/kernels_targets.h"

namespace {

using namespace hvd;
using Clock = std::chrono::steady_clock;

constexpr std::array<size_t, 4> kSizes = {size_t{4} << 10, size_t{32} << 10, size_t{1} << 20, size_t{64} << 20};

template <class Run>
double seconds_of(size_t repeats, const Run& run) {
  double best = 1e9;
  double total = 0;
  for (int round = 0; round < 5 || total < 0.03; ++round) {
    const auto start = Clock::now();
    for (size_t i = 0; i < repeats; ++i) run();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best / static_cast<double>(repeats);
}

class Arrays {
 public:
  explicit Arrays(size_t bytes) : bytes_(bytes), memory_(kCount * (bytes + kPad) + kPad) {
    for (size_t i = 0; i < kCount; ++i) std::memset((*this)[i], static_cast<int>(i), bytes);
  }
  // Page aligned plus a few lines, so that the arrays do not compete for the same cache sets.
  std::byte* operator[](size_t i) {
    const auto start = (reinterpret_cast<uintptr_t>(memory_.data()) + 4095) / 4096 * 4096;
    return reinterpret_cast<std::byte*>(start) + i * (bytes_ + kPad / 2 + 192);
  }

 private:
  static constexpr size_t kCount = 6;
  static constexpr size_t kPad = 8192;
  size_t bytes_;
  std::vector<std::byte> memory_;
};

void print_row(const std::string& name, const std::function<void(Arrays&, size_t bytes)>& run) {
  fmt::print("{:<34}", name);
  for (const size_t bytes : kSizes) {
    Arrays arrays(bytes);
    const size_t repeats = std::max<size_t>(1, (size_t{2} << 20) / bytes);
    fmt::print("{:>9.1f}", static_cast<double>(bytes) / seconds_of(repeats, [&] { run(arrays, bytes); }) / 1e9);
  }
  fmt::print("\n");
}

#if defined(__x86_64__)
#define HVD_PLAIN_TARGET [[gnu::target("avx2"), gnu::optimize("O3"), gnu::noinline]]
#else
#define HVD_PLAIN_TARGET [[gnu::optimize("O3"), gnu::noinline]]
#endif
HVD_PLAIN_TARGET void plain_sum(float* __restrict a, const float* b, const float* c, size_t count) {
  for (size_t i = 0; i < count; ++i) a[i] = b[i] + c[i];
}
HVD_PLAIN_TARGET void plain_sum_in_place(float* __restrict a, const float* b, size_t count) {
  for (size_t i = 0; i < count; ++i) a[i] += b[i];
}

void print_plain() {
  print_row("plain f32 a = b + c", [](Arrays& arrays, size_t bytes) {
    plain_sum(reinterpret_cast<float*>(arrays[0]), reinterpret_cast<float*>(arrays[1]),
              reinterpret_cast<float*>(arrays[2]), bytes / 4);
  });
  print_row("plain f32 a += b", [](Arrays& arrays, size_t bytes) {
    plain_sum_in_place(reinterpret_cast<float*>(arrays[0]), reinterpret_cast<float*>(arrays[1]), bytes / 4);
  });
}

void print_reduce(const Kernels& kernels, const std::string& name, DType dtype, ReduceOp op, size_t sources,
                  double factor = 1.0, bool with_copy = false, StoreHint store = StoreHint::cached) {
  print_row(name, [&](Arrays& arrays, size_t bytes) {
    const std::array<const std::byte*, 4> pointers = {arrays[1], arrays[2], arrays[3], arrays[4]};
    reduce(kernels, dtype, op, arrays[0], std::span(pointers).first(sources), bytes / size_of(dtype), factor,
           with_copy ? arrays[5] : nullptr, store);
  });
}

void print_kernels(const Kernels& kernels) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::i32, DType::i64}) {
    print_reduce(kernels, fmt::format("{} sum of 2", name_of(dtype)), dtype, ReduceOp::sum, 2);
  }
  print_reduce(kernels, "float32 sum of 3", DType::f32, ReduceOp::sum, 3);
  print_reduce(kernels, "float32 sum of 4", DType::f32, ReduceOp::sum, 4);
  print_reduce(kernels, "float32 average of 2", DType::f32, ReduceOp::average, 2, 0.5);
  print_reduce(kernels, "int32 average of 2", DType::i32, ReduceOp::average, 2, 0.5);
  print_reduce(kernels, "int64 average of 2", DType::i64, ReduceOp::average, 2, 0.5);
  print_reduce(kernels, "float32 max of 2", DType::f32, ReduceOp::max, 2);
  print_reduce(kernels, "float32 sum of 2, copy", DType::f32, ReduceOp::sum, 2, 1.0, true);
  print_reduce(kernels, "float32 sum of 2, streaming copy", DType::f32, ReduceOp::sum, 2, 1.0, true,
               StoreHint::streaming);
  print_row("float32 sum of 2, in place", [&](Arrays& arrays, size_t bytes) {
    const std::array<const std::byte*, 2> pointers = {arrays[0], arrays[1]};
    reduce(kernels, DType::f32, ReduceOp::sum, arrays[0], pointers, bytes / 4, 1.0, nullptr, StoreHint::cached);
  });
  print_row("float32 sum of 2, misaligned", [&](Arrays& arrays, size_t bytes) {
    const std::array<const std::byte*, 2> pointers = {arrays[1] + 8, arrays[2] + 12};
    reduce(kernels, DType::f32, ReduceOp::sum, arrays[0] + 4, pointers, bytes / 4, 1.0, nullptr, StoreHint::cached);
  });
  print_row("float32 scale", [&](Arrays& arrays, size_t bytes) {
    scale(kernels, DType::f32, arrays[0], arrays[1], bytes / 4, 0.5, StoreHint::cached);
  });
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    print_row(fmt::format("{} dot", name_of(dtype)), [&](Arrays& arrays, size_t bytes) {
      volatile double result = dot(kernels, dtype, arrays[1], arrays[2], bytes / size_of(dtype));
      (void)result;
    });
  }
  print_row("float32 weighted sum of 2", [&](Arrays& arrays, size_t bytes) {
    const std::array<const std::byte*, 2> pointers = {arrays[1], arrays[2]};
    weighted_sum(kernels, DType::f32, arrays[0], pointers, std::array{0.5, 0.25}, bytes / 4);
  });
  print_row("copy, cached",
            [&](Arrays& arrays, size_t bytes) { copy(kernels, arrays[0], arrays[1], bytes, StoreHint::cached); });
  print_row("copy, streaming",
            [&](Arrays& arrays, size_t bytes) { copy(kernels, arrays[0], arrays[1], bytes, StoreHint::streaming); });
}

void print_latencies() {
  const std::array<size_t, 7> counts = {1, 4, 7, 8, 31, 256, 1024};
  fmt::print("\n{:<34}", "ns per call, count");
  for (const size_t count : counts) fmt::print("{:>9}", count);
  Arrays arrays(4096);
  const auto print_times = [&](const char* name, const auto& run) {
    fmt::print("\n{:<34}", name);
    for (const size_t count : counts) fmt::print("{:>9.1f}", 1e9 * seconds_of(20'000, [&] { run(count); }));
  };
  print_times("plain f32 a = b + c", [&](size_t count) {
    plain_sum(reinterpret_cast<float*>(arrays[0]), reinterpret_cast<float*>(arrays[1]),
              reinterpret_cast<float*>(arrays[2]), count);
  });
  const std::array<const std::byte*, 2> pointers = {arrays[1], arrays[2]};
  print_times("float32 sum of 2", [&](size_t count) { reduce(DType::f32, ReduceOp::sum, arrays[0], pointers, count); });
  fmt::print("\n");
}

}  // namespace

int main() {
  fmt::print("{:<34}", "GB/s of destination");
  for (const size_t bytes : kSizes) fmt::print("{:>5} KiB", bytes / 1024);
  fmt::print("\n");
  print_plain();
  for (const Kernels* kernels : supported_kernels()) {
    fmt::print("\n{}\n", kernels->name);
    print_kernels(*kernels);
  }
  print_latencies();
}
