// Splits the command line into options and the command: everything from the first word that is not an option. Like
// argparse, it accepts any unambiguous prefix of a long option; single-dash words such as -np are single options, not
// bundles of letters. An error about an unknown option suggests the closest one. Thread rule: pure function.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/command_line/option_table.h"

namespace hvd::launcher {

struct GivenOption {
  const OptionRow* row;
  bool is_opposite;
  std::string spelling;  // as the user wrote it
  std::vector<std::string> values;
};

struct Arguments {
  std::vector<GivenOption> options;
  std::vector<std::string> command;
};

// Parsing stops at --help and --version.
Result<Arguments> parse_arguments(const std::vector<std::string>& words);

// The YAML file of --config-file. Its keys are those of the option table. An unknown key is a warning that names the
// closest known one, so that files for other versions work. Sets what the file at `path` says. `line` has nothing of
// the command line yet, which wins over the file. `controller` receives the key of that name.
Status apply_config_file(const std::string& path, CommandLine& line, std::string& controller);

}  // namespace hvd::launcher
