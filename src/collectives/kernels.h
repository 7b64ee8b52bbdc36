// The arithmetic of collectives, for every dtype: reduce, scale, copy, dot. SIMD, chosen at run time for this CPU.
// Sources and destinations need only element alignment; a destination may equal one source but must not overlap it
// otherwise. float16 and bfloat16 are accumulated in float32 and rounded once, to nearest even. Results depend only on
// the order of the sources: the same bits on every CPU kind, length and alignment (except which NaN an arithmetic
// operation returns, which is up to the CPU). min and max return the first NaN, if there is one. Integers wrap; scaled
// integers saturate. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <span>

#include "model/dtype.h"
#include "model/request.h"

namespace hvd {

// How to store to memory that another core reads next: through the caches, or bypassing them.
enum class StoreHint { cached, streaming };

// destination[i] = factor * (sources[0][i] op sources[1][i] op ...), from left to right. `op` is sum (also for average:
// the caller passes the factor), min, max, product, or bitwise (with factor 1). Factor 1 is exact for every dtype;
// others follow scale(). If `copy` is not null the result is also stored there, with `store`.
void reduce(DType dtype, ReduceOp op, std::byte* destination, std::span<const std::byte* const> sources, size_t count,
            double factor = 1.0, std::byte* copy = nullptr, StoreHint store = StoreHint::cached);

// destination[i] = factor * source[i]. Integers are scaled in float64 and truncated towards zero, float16 and bfloat16
// in float32, float32 with a float32 factor, complex by both parts.
void scale(DType dtype, std::byte* destination, const std::byte* source, size_t count, double factor,
           StoreHint store = StoreHint::cached);

// memcpy with a choice of store.
void copy(std::byte* destination, const std::byte* source, size_t bytes, StoreHint store = StoreHint::cached);

// sum of a[i] * b[i] in float64, for f16, bf16, f32, f64.
double dot(DType dtype, const std::byte* a, const std::byte* b, size_t count);

// destination[i] = sum over k of weights[k] * sources[k][i], for f16, bf16, f32 (in float32), f64.
void weighted_sum(DType dtype, std::byte* destination, std::span<const std::byte* const> sources,
                  std::span<const double> weights, size_t count);

// Whether this dtype supports this reduction / a factor other than 1 (docs/api: uint16, int16 and bool cannot be
// scaled; complex has sum only; bool has sum and max as "or", min and product as "and"; only integers and bool have
// bitwise reductions).
bool can_reduce(DType dtype, ReduceOp op);
bool can_scale(DType dtype);

}  // namespace hvd
