// What this machine offers for GPU tensors, in words for people: horovodrun --check-build and --doctor.
// Thread rule: opens the driver, so it is for a process that ends soon.
#pragma once

#include <string>

#include "backends/nccl/libraries.h"

namespace hvd {

struct GpuReport {
  bool is_usable = false;  // both libraries are there; `text` says which GPUs are
  std::string text;        // versions, paths and GPUs, or why NCCL cannot be used; one line
};
GpuReport describe_gpus(const LibrarySearch& found);

}  // namespace hvd
