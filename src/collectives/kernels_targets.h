// The functions of kernels.h with the CPU kind as an argument, so that tests can run all kinds.
// Thread rule: pure functions.
#pragma once

#include <span>

#include "collectives/kernels.h"
#include "collectives/kernels_table.h"

namespace hvd {

std::span<const Kernels* const> supported_kernels();  // by this CPU, best last

void reduce(const Kernels& kernels, DType dtype, ReduceOp op, std::byte* destination,
            std::span<const std::byte* const> sources, size_t count, double factor, std::byte* copy, StoreHint store);
void scale(const Kernels& kernels, DType dtype, std::byte* destination, const std::byte* source, size_t count,
           double factor, StoreHint store);
void copy(const Kernels& kernels, std::byte* destination, const std::byte* source, size_t bytes, StoreHint store);
double dot(const Kernels& kernels, DType dtype, const std::byte* a, const std::byte* b, size_t count);
void weighted_sum(const Kernels& kernels, DType dtype, std::byte* destination,
                  std::span<const std::byte* const> sources, std::span<const double> weights, size_t count);

}  // namespace hvd
