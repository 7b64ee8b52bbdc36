// Cuts the command line in two, the launcher's own arguments and the command, and makes the former palatable to CLI11:
// spellings such as -np become long options, unique beginnings of long options are completed (as argparse does), and an
// unknown option is answered with the closest known one.
// Thread rule: pure functions.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "base/status.h"

namespace hvd {

struct Arguments {
  std::vector<std::string> own;
  std::vector<std::string> command;  // everything from the first positional on
};

// `app` knows the options; it is not asked to parse.
Result<Arguments> split_arguments(const CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace hvd
