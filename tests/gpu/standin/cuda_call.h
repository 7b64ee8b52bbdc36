// What every function of the CUDA API does first.
#pragma once

#include "core/context.h"
#include "core/counts.h"
#include "core/faults.h"
#include "core/memory.h"
#include "core/settings.h"
#include "cuda_declarations.h"

namespace standin {

// 0, or the code that the call has to return: not initialised, forked, a sticky error, a fault.
int enter(const char* call, size_t size = 0);
// Likewise, for calls that need a current context.
int enter_context(const char* call, size_t size = 0);

// The stream that a call is to launch on; null after a violation, with the code to return. core().mutex is held.
STANDIN_VISIBLE Stream* launch_stream(void* handle, const char* call, int* code);

}  // namespace standin

#define STANDIN_ENTER(call) \
  if (const int refused = standin::enter(call); refused != 0) return refused
#define STANDIN_ENTER_CONTEXT(call) \
  if (const int refused = standin::enter_context(call); refused != 0) return refused

#define STANDIN_API_DECLARE(name, parameters) STANDIN_API int name parameters;
STANDIN_CUDA_FUNCTIONS(STANDIN_API_DECLARE)
#undef STANDIN_API_DECLARE
