// The kernels, written once and compiled for several CPU kinds: each kernels_<kind>.cc includes this file and builds
// one table (kernels_table.h) from it.
//
// Everything here is in an unnamed namespace and nothing calls std:: functions: otherwise the linker might keep the
// AVX-512 copy of an inline function for the whole library.
//
// The loops work on blocks of kUnroll vectors. All sources of a block are combined in registers, the factor is applied,
// and only then is the block stored, so a destination may be one of the sources. The elements before the first block
// (to align a streaming store) and after the last are computed as vectors that overlap blocks; these two are computed
// before the first store and stored last. Ranges shorter than a vector are computed element by element.
// Bits must not depend on the CPU kind, and integers wrap: compile with -ffp-contract=off -fwrapv.
#pragma once

#include "collectives/kernels_table.h"
#include "collectives/kernels_vector.h"

namespace hvd {
namespace {

struct Sum {
  template <class V>
  static V of(V a, V b) {
    return static_cast<V>(a + b);
  }
};
struct Product {
  template <class V>
  static V of(V a, V b) {
    return static_cast<V>(a * b);
  }
};
// Returns the first NaN; of equal values (zeros of both signs) the last.
struct Min {
  template <class V>
  static V of(V a, V b) {
    return ((a < b) | (a != a)) ? a : b;
  }
};
struct Max {
  template <class V>
  static V of(V a, V b) {
    return ((a > b) | (a != a)) ? a : b;
  }
};

struct And {
  template <class V>
  static V of(V a, V b) {
    return static_cast<V>(a & b);
  }
};
struct Or {
  template <class V>
  static V of(V a, V b) {
    return static_cast<V>(a | b);
  }
};
struct Xor {
  template <class V>
  static V of(V a, V b) {
    return static_cast<V>(a ^ b);
  }
};

template <class Op, class V>
V apply(V a, V b) {
  return Op::of(a, b);
}
template <class Op>
FloatPair apply(FloatPair a, FloatPair b) {
  return {Op::of(a.even, b.even), Op::of(a.odd, b.odd)};
}

// How the sources are combined: first, then next for each further source, then last. T is an element type of
// kernels_vector.h, V its Vec or One.
template <class T, class Op>
struct Reduction {
  double factor;
  bool has_last;

  explicit Reduction(const ElementJob& job) : factor(job.factor), has_last(job.factor != 1.0) {}
  template <class V>
  V first(V value) const {
    return value;
  }
  template <class V>
  V next(V result, V value, size_t) const {
    return apply<Op>(result, value);
  }
  template <class V>
  V last(V result) const {
    if constexpr (requires { T::scale(result, factor); }) return T::scale(result, factor);
    return result;
  }
};

template <class T>
struct WeightedSum {
  const double* weights;
  static constexpr bool has_last = false;

  explicit WeightedSum(const ElementJob& job) : weights(job.weights) {}
  template <class V>
  V first(V value) const {
    return T::scale(value, weights[0]);
  }
  template <class V>
  V next(V result, V value, size_t source) const {
    return apply<Sum>(result, T::scale(value, weights[source]));
  }
  template <class V>
  V last(V result) const {
    return result;
  }
};

// The sources of a job. For the compiler, stores may alias the job's array, so a fixed number of pointers is kept in
// registers.
template <size_t kSources>
struct Sources {
  const std::byte* pointers[kSources];
  static constexpr size_t count = kSources;
  explicit Sources(const ElementJob& job) {
    for (size_t i = 0; i < kSources; ++i) pointers[i] = job.sources[i];
  }
};
template <>
struct Sources<0> {  // any number
  const std::byte* const* pointers;
  size_t count;
  explicit Sources(const ElementJob& job) : pointers(job.sources), count(job.source_count) {}
};

template <class T, class Fold>
void run_one_by_one(const ElementJob& job_in_memory) {
  const ElementJob job = job_in_memory;  // a copy that no store can change
  const Fold fold(job);
  for (size_t i = 0; i < job.count; ++i) {
    const size_t offset = i * sizeof(typename T::Element);
    typename T::One result = fold.first(T::load_one(job.sources[0] + offset));
    for (size_t k = 1; k < job.source_count; ++k) {
      result = fold.next(result, T::load_one(job.sources[k] + offset), k);
    }
    if (fold.has_last) result = fold.last(result);
    const typename T::Element element = T::pack(result);
    if (job.destination != nullptr) store(job.destination + offset, element);
    if (job.copy != nullptr) store(job.copy + offset, element);
    if (job.stream != nullptr) store(job.stream + offset, element);
  }
}

// The memory of one Vec.
template <class T>
using PackedOf = decltype(T::pack(typename T::Vec{}));

// Offsets are in bytes.
template <class T, class Fold, size_t kSources>
struct Loop {
  using Packed = PackedOf<T>;

  const Fold fold;
  const Sources<kSources> sources;
  std::byte* const destination;
  std::byte* const copy;
  std::byte* const streamed;

  explicit Loop(const ElementJob& job)
      : fold(job), sources(job), destination(job.destination), copy(job.copy), streamed(job.stream) {}

  template <size_t kVectors, class Body>
  [[gnu::always_inline]] static void each(Body body) {
#pragma GCC unroll 8
    for (size_t i = 0; i < kVectors; ++i) body(i, i * sizeof(Packed));
  }

  template <size_t kVectors>
  [[gnu::always_inline]] void compute(size_t offset, Packed* packed) const {
    typename T::Vec results[kVectors];
    each<kVectors>([&](size_t i, size_t at) { results[i] = fold.first(T::load(sources.pointers[0] + offset + at)); });
    for (size_t k = 1; k < sources.count; ++k) {
      const std::byte* source = sources.pointers[k] + offset;
      each<kVectors>([&](size_t i, size_t at) { results[i] = fold.next(results[i], T::load(source + at), k); });
    }
    if (fold.has_last) each<kVectors>([&](size_t i, size_t) { results[i] = fold.last(results[i]); });
    each<kVectors>([&](size_t i, size_t) { packed[i] = T::pack(results[i]); });
  }

  template <size_t kVectors>
  [[gnu::always_inline]] void block(size_t offset) const {
    Packed packed[kVectors];
    compute<kVectors>(offset, packed);
    const auto put = [&](std::byte* to) { each<kVectors>([&](size_t i, size_t at) { store(to + at, packed[i]); }); };
    if (destination != nullptr) put(destination + offset);
    if (copy != nullptr) put(copy + offset);
    if (streamed != nullptr) each<kVectors>([&](size_t i, size_t at) { stream(streamed + offset + at, packed[i]); });
  }

  [[gnu::always_inline]] void put_edge(size_t offset, Packed packed) const {
    if (destination != nullptr) store(destination + offset, packed);
    if (copy != nullptr) store(copy + offset, packed);
    if (streamed != nullptr) store(streamed + offset, packed);
  }
};

template <class T, class Fold>
[[gnu::noinline]] PackedOf<T> compute_edge(const ElementJob& job, size_t offset) {
  PackedOf<T> packed;
  Loop<T, Fold, 0>(job).template compute<1>(offset, &packed);
  return packed;
}

template <class T, class Fold, size_t kSources>
[[gnu::noinline]] void run_loop(const ElementJob& job) {
  const Loop<T, Fold, kSources> loop(job);
  using Packed = PackedOf<T>;
  constexpr size_t kBlock = T::kUnroll * sizeof(Packed);
  const size_t end = job.count * sizeof(typename T::Element);

  const size_t head = -reinterpret_cast<uintptr_t>(job.stream) % sizeof(Packed);
  const bool has_tail = (end - head) % sizeof(Packed) != 0;
  Packed head_vector{};
  Packed tail_vector{};
  if (head != 0) head_vector = compute_edge<T, Fold>(job, 0);
  if (has_tail) tail_vector = compute_edge<T, Fold>(job, end - sizeof(Packed));

  size_t offset = head;
  for (; end - offset >= kBlock; offset += kBlock) loop.template block<T::kUnroll>(offset);
  for (; end - offset >= sizeof(Packed); offset += sizeof(Packed)) loop.template block<1>(offset);

  if (head != 0) loop.put_edge(0, head_vector);
  if (has_tail) loop.put_edge(end - sizeof(Packed), tail_vector);
  if (job.stream != nullptr) finish_streaming();
}

template <class T, class Fold>
void run(const ElementJob& job) {
  if (job.count * sizeof(typename T::Element) < sizeof(PackedOf<T>)) return run_one_by_one<T, Fold>(job);
  run_loop<T, Fold, 0>(job);
}

// Common numbers of sources have their own loops.
template <class T>
void run_sum(const ElementJob& job) {
  using Fold = Reduction<T, Sum>;
  if (job.count * sizeof(typename T::Element) < sizeof(PackedOf<T>)) return run_one_by_one<T, Fold>(job);
  switch (job.source_count) {
    case 2: return run_loop<T, Fold, 2>(job);
    case 3: return run_loop<T, Fold, 3>(job);
    case 4: return run_loop<T, Fold, 4>(job);
  }
  run_loop<T, Fold, 0>(job);
}

template <class T, class Op>
constexpr Kernels::Elementwise kReduce = run<T, Reduction<T, Op>>;

// The order of additions in dot() is fixed for all CPU kinds: element i goes to lane i % kLanes, then halves of the
// lanes are added until one is left.
constexpr size_t kLanes = 16;
constexpr size_t kDoubles = kVectorBytes / sizeof(double);

// kLanes consecutive elements, as vectors of float64.
template <class T>
struct LaneBuffer {
  alignas(kVectorBytes) float values[kLanes];
  explicit LaneBuffer(const std::byte* from) {
    constexpr size_t kFloats = kVectorBytes / sizeof(float);
    for (size_t i = 0; i < kLanes; i += kFloats) {
      const Floats part = T::load_in_order(from + i * sizeof(typename T::Element));
      __builtin_memcpy(values + i, &part, sizeof part);
    }
  }
  Doubles at(size_t i) const { return widen(load<HalfFloats>(reinterpret_cast<const std::byte*>(values + i))); }
};
template <>
struct LaneBuffer<Float<float>> {
  const std::byte* from;
  Doubles at(size_t i) const { return widen(load<HalfFloats>(from + i * sizeof(float))); }
};
template <>
struct LaneBuffer<Float<double>> {
  const std::byte* from;
  Doubles at(size_t i) const { return load<Doubles>(from + i * sizeof(double)); }
};

template <class T>
double dot_elements(const std::byte* a, const std::byte* b, size_t count) {
  constexpr size_t kElement = sizeof(typename T::Element);
  Doubles sums[kLanes / kDoubles] = {};
  for (; count >= kLanes; count -= kLanes) {
    const LaneBuffer<T> left{a};
    const LaneBuffer<T> right{b};
#pragma GCC unroll 8
    for (size_t i = 0; i < kLanes / kDoubles; ++i) sums[i] += left.at(i * kDoubles) * right.at(i * kDoubles);
    a += kLanes * kElement;
    b += kLanes * kElement;
  }
  double lanes[kLanes];
  __builtin_memcpy(lanes, sums, sizeof sums);
  for (size_t i = 0; i < count; ++i) {
    lanes[i] += static_cast<double>(T::load_one(a + i * kElement)) * static_cast<double>(T::load_one(b + i * kElement));
  }
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// put(address, vector) stores; the addresses are aligned.
template <class Put>
void copy_vectors(std::byte* destination, const std::byte* source, size_t bytes, Put put) {
  const size_t misaligned = -reinterpret_cast<uintptr_t>(destination) % kVectorBytes;
  size_t offset = misaligned < bytes ? misaligned : bytes;
  __builtin_memcpy(destination, source, offset);
  constexpr size_t kVectors = 4;
  for (; bytes - offset >= kVectors * kVectorBytes; offset += kVectors * kVectorBytes) {
    Vector<uint8_t> block[kVectors];
#pragma GCC unroll 4
    for (size_t i = 0; i < kVectors; ++i) block[i] = load<Vector<uint8_t>>(source + offset + i * kVectorBytes);
#pragma GCC unroll 4
    for (size_t i = 0; i < kVectors; ++i) put(destination + offset + i * kVectorBytes, block[i]);
  }
  __builtin_memcpy(destination + offset, source + offset, bytes - offset);
}

void copy_bytes(std::byte* destination, const std::byte* source, size_t bytes) {
  copy_vectors(destination, source, bytes, [](std::byte* to, Vector<uint8_t> vector) { store(to, vector); });
}

void stream_bytes(std::byte* destination, const std::byte* source, size_t bytes) {
  copy_vectors(destination, source, bytes, [](std::byte* to, Vector<uint8_t> vector) { stream(to, vector); });
  finish_streaming();
}

template <class T>
constexpr Kernels::Row integer_row() {
  return {
      {run_sum<T>, kReduce<T, Min>, kReduce<T, Max>, kReduce<T, Product>, nullptr, nullptr, nullptr}, nullptr, nullptr};
}

template <class T>
constexpr Kernels::Row float_row() {
  Kernels::Row row = integer_row<T>();
  row.weighted_sum = run<T, WeightedSum<T>>;
  row.dot = dot_elements<T>;
  return row;
}

constexpr Kernels::Row byte_row() {
  using Byte = Integer<uint8_t>;
  Kernels::Row row = integer_row<Byte>();
  row.reduce[Kernels::kAnd] = kReduce<Byte, And>;
  row.reduce[Kernels::kOr] = kReduce<Byte, Or>;
  row.reduce[Kernels::kXor] = kReduce<Byte, Xor>;
  return row;
}

constexpr Kernels::Row boolean_row() {
  constexpr Kernels::Elementwise kOr = kReduce<Boolean, Max>;
  constexpr Kernels::Elementwise kAnd = kReduce<Boolean, Min>;
  return {{kOr, kAnd, kOr, kAnd, kAnd, kOr, kReduce<Boolean, Xor>}, nullptr, nullptr};
}

constexpr Kernels make_kernels(const char* name) {
  Kernels kernels{};
  kernels.name = name;
  const auto row = [&](DType dtype) -> Kernels::Row& { return kernels.rows[static_cast<size_t>(dtype)]; };
  row(DType::u8) = byte_row();
  row(DType::i8) = integer_row<Integer<int8_t>>();
  row(DType::u16) = integer_row<Integer<uint16_t>>();
  row(DType::i16) = integer_row<Integer<int16_t>>();
  row(DType::i32) = integer_row<Integer<int32_t>>();
  row(DType::i64) = integer_row<Integer<int64_t>>();
  row(DType::f16) = float_row<Float16>();
  row(DType::f32) = float_row<Float<float>>();
  row(DType::f64) = float_row<Float<double>>();
  row(DType::bf16) = float_row<Bfloat16>();
  row(DType::boolean) = boolean_row();
  kernels.copy = copy_bytes;
  kernels.stream_copy = stream_bytes;
  return kernels;
}

}  // namespace
}  // namespace hvd
