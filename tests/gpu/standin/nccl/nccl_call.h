// What every function of the NCCL API does first.
#pragma once

#include "core/counts.h"
#include "core/faults.h"
#include "core/settings.h"
#include "nccl/group.h"
#include "nccl/progress.h"

namespace standin::nccl {

int library_version();  // of this build of the library, or HVD_STANDIN_NCCL_VERSION

// A fault's code for this call, or 0.
int fault_code(const char* call);

// The communicator of a call that may not be made while another is in progress; null with the result to return.
Communicator* use(const void* handle, const char* call, int* result);

SitePointer call_site(const char* call);

}  // namespace standin::nccl

#define STANDIN_NCCL_DECLARE(result, name, parameters) STANDIN_API result name parameters;
STANDIN_NCCL_FUNCTIONS_2_18(STANDIN_NCCL_DECLARE)
STANDIN_NCCL_FUNCTIONS_2_19(STANDIN_NCCL_DECLARE)
STANDIN_NCCL_FUNCTIONS_2_27(STANDIN_NCCL_DECLARE)
STANDIN_NCCL_FUNCTIONS_2_28(STANDIN_NCCL_DECLARE)
#undef STANDIN_NCCL_DECLARE
