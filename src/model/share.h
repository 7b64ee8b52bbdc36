// How reducescatter divides rows among the ranks of a set. Thread rule: pure function.
#pragma once

#include <cstdint>

namespace hvd {

// The number of rows for rank p of n: nearly equal, the larger shares first.
constexpr int64_t share_of(int64_t rows, int32_t p, int32_t n) { return rows / n + (p < rows % n ? 1 : 0); }

}  // namespace hvd
