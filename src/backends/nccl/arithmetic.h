// How a reduction of Horovod is done with NCCL's operations and a factor before and after. Pure functions of the
// request and the number of ranks, so all ranks decide alike.
#pragma once

#include <cstdint>
#include <optional>

#include "backends/nccl/nccl_api.h"
#include "model/request.h"

namespace hvd {

// Types that NCCL can reduce; nothing: tensors of this type are copied through host memory to be reduced.
std::optional<NcclType> nccl_type_of(DType dtype);
// Whether NCCL can execute this request. Kinds that only move bytes take every type.
bool can_use_nccl(const Request& request);

struct NcclReduction {
  NcclOp op = NcclOp::sum;
  double before = 1.0;  // for every element of the input; a float16 factor is already rounded to float16
  double after = 1.0;   // for every element of the result
};
NcclReduction nccl_reduction_of(const Request& request, int32_t ranks);

}  // namespace hvd
