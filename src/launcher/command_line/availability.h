// The one place that knows what the command line can ask for and this version cannot do. Thread rule: pure function.
#pragma once

#include "base/status.h"
#include "launcher/command_line/options.h"

namespace hvd {

Status check_available(const Options& options);

}  // namespace hvd
