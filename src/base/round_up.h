// The next multiple. Thread rule: pure function.
#pragma once

#include <cstddef>

namespace hvd {

constexpr size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

}  // namespace hvd
