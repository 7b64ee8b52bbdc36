// How errors leave the library: as a code, with the text kept for hvd_last_error. For the files of this folder. Thread
// rule: any thread; every thread has its own text.
#pragma once

#include <cstdint>
#include <exception>

#include "base/status.h"
#include "horovod/horovod.h"

namespace hvd {

hvd_code report(const Status& status);
const char* last_error();
const Origin& last_origin();

// Exceptions never cross the ABI.
template <class Body>
hvd_code guarded(Body&& body) {
  try {
    return report(body());
  } catch (const std::exception& problem) {
    return report({Code::unknown, problem.what()});
  }
}

// For functions that return a value or a negative code.
template <class Body>
int32_t guarded_value(Body&& body) {
  try {
    Result<int32_t> result = body();
    return result.ok() ? *result : -static_cast<int32_t>(report(result.status()));
  } catch (const std::exception& problem) {
    return -static_cast<int32_t>(report({Code::unknown, problem.what()}));
  }
}

}  // namespace hvd
