// --dry-run: the job that a command line describes, as JSON. Thread rule: pure function.
#pragma once

#include <string>

#include "base/status.h"
#include "launcher/command_line/option_table.h"

namespace hvd {

Result<std::string> job_json(const CommandLine& line);

}  // namespace hvd
