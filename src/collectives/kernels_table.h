// The kernels of one CPU kind as a table of functions. kernels_simd.h is compiled once per kind into such a table;
// kernels.cc picks the best one for this CPU. No std templates here: see kernels_simd.h.
// Thread rule: constant data.
#pragma once

#include <cstddef>

#include "model/dtype.h"

namespace hvd {

inline constexpr size_t kDTypeCount = static_cast<size_t>(kLastDType) + 1;

// One call of an element-wise kernel. Three outputs, each may be null: destination and copy are written through the
// caches, stream bypasses them.
struct ElementJob {
  std::byte* destination;
  std::byte* copy;
  std::byte* stream;
  const std::byte* const* sources;
  size_t source_count;    // at least 1
  size_t count;           // elements
  double factor;          // of the result; weighted_sum ignores it
  const double* weights;  // one per source; only weighted_sum reads them
};

// Rows are dtypes; complex ones have none, because the caller passes their parts. Bitwise reductions of all integers
// are those of bytes. Null for combinations that kernels.h does not support.
struct Kernels {
  using Elementwise = void (*)(const ElementJob& job);
  using Dot = double (*)(const std::byte* a, const std::byte* b, size_t count);
  enum Operator { kSum, kMin, kMax, kProduct, kAnd, kOr, kXor, kOperators };
  struct Row {
    Elementwise reduce[kOperators];
    Elementwise weighted_sum;
    Dot dot;
  };
  const char* name;  // "x86-64-v3"
  Row rows[kDTypeCount];
  void (*copy)(std::byte* destination, const std::byte* source, size_t bytes);
  void (*stream_copy)(std::byte* destination, const std::byte* source, size_t bytes);
};

extern const Kernels kBaselineKernels;  // for every CPU of this architecture
#if defined(__x86_64__)
extern const Kernels kX86V3Kernels;  // AVX2, FMA, F16C
extern const Kernels kX86V4Kernels;  // AVX-512 F, BW, CD, DQ, VL
#endif

}  // namespace hvd
