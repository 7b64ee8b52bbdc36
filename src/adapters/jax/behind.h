// Operations on GPUs that XLA's stream waits for: the custom call has returned, and they may still run. A name can be
// used again when its operation has ended, so the next call of that name waits for it, and reports how it ended.
//
// Thread rule: any thread.
#pragma once

#include <string>
#include <vector>

#include "horovod/horovod.h"

namespace hvd::jax {

// Waits for operations of these names. Not HVD_OK: one has failed since; hvd_last_error has the text.
hvd_code wait_for_names(int32_t process_set, const std::vector<std::string>& names);
// `handle` is released when its operation has ended.
void keep_behind(int32_t process_set, const std::vector<std::string>& names, hvd_handle handle);
// The world has ended, and everything in it.
void forget_behind();

}  // namespace hvd::jax
