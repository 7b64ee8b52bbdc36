// Compiled with -march=x86-64-v4; see src/CMakeLists.txt.
#if defined(__x86_64__)

#include "collectives/kernels_simd.h"

static_assert(hvd::kVectorBytes == 64);

namespace hvd {

constinit const Kernels kX86V4Kernels = make_kernels("x86-64-v4");

}  // namespace hvd

#endif
