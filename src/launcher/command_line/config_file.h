// The YAML file of --config-file. Its keys are those of the option table; an unknown one is a warning with the closest
// known one, so that files for other versions work. Thread rule: pure functions, one reads a file.
#pragma once

#include <string>

#include "base/status.h"
#include "launcher/command_line/option_table.h"

namespace hvd {

// Sets what the file at `path` says. `line` has nothing of the command line yet, which wins over the file.
// `controller` receives the key of that name.
Status apply_config_file(const std::string& path, CommandLine& line, std::string& controller);

}  // namespace hvd
