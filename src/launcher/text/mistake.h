// A mistake of the user: the answer to a wrong command line, file or variable. Thread rule: pure function.
#pragma once

#include <string>
#include <utility>

#include "base/status.h"

namespace hvd {

inline Status mistake(std::string text) { return Status(Code::invalid_argument, std::move(text)); }

}  // namespace hvd
