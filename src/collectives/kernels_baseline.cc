#include "collectives/kernels_simd.h"

namespace hvd {

constinit const Kernels kBaselineKernels = make_kernels("baseline");

}  // namespace hvd
