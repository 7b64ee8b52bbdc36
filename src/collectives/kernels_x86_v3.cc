// Compiled with -march=x86-64-v3; see src/CMakeLists.txt.
#if defined(__x86_64__)

#include "collectives/kernels_simd.h"

static_assert(hvd::kVectorBytes == 32);

namespace hvd {

constinit const Kernels kX86V3Kernels = make_kernels("x86-64-v3");

}  // namespace hvd

#endif
