// How rows are shared out over the ranks of a set in reducescatter. Thread rule: pure function.
#pragma once

#include <cstdint>

namespace hvd {

// Rows of `rows` that rank p of n gets: nearly equal, the larger shares first.
constexpr int64_t share_of(int64_t rows, int32_t p, int32_t n) { return rows / n + (p < rows % n ? 1 : 0); }

}  // namespace hvd
