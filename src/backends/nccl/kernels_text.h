// The text of kernels/kernels.ptx, which tools/generate_kernels.sh makes. Thread rule: a constant.
#pragma once

namespace hvd {

extern const char* const kKernelsText;

}  // namespace hvd
