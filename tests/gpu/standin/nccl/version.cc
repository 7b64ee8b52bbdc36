// The only file that is compiled once per variant of the library.
#include "core/settings.h"
#include "nccl/nccl_call.h"

int standin::nccl::library_version() {
  return settings().nccl_version != 0 ? settings().nccl_version : STANDIN_NCCL_VERSION;
}

STANDIN_API const char* hvd_standin_nccl_marker(void) { return "stand-in: no NCCL"; }
