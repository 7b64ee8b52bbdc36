// NCCL's reductions, one rank after another, rounded to the type at every step.
#pragma once

#include <cstddef>
#include <span>

#include "nccl_declarations.h"

namespace standin::nccl {

// A built-in operation, or the pre-multiplied sum: `scale` then holds the factor in the tensor's type.
struct Reduction {
  int op = kSum;
  bool scaled = false;
  alignas(8) unsigned char scale[8] = {};
};

size_t size_of(int type);
// result[i] = the reduction over inputs[r][i], r = the ranks. The result may be one of the inputs. `scales` has every
// rank's factor where the reduction is scaled.
void reduce(int type, const Reduction& reduction, std::span<const char* const> inputs,
            std::span<const Reduction> scales, size_t count, char* result);

}  // namespace standin::nccl
