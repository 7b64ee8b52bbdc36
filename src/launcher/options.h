// The command line of horovodrun. Thread rule: plain value, parsed once.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/hosts.h"
#include "launcher/tunables.h"

namespace hvd {

struct Options {
  enum class Action { run, show_help, show_version };
  Action action = Action::run;
  std::string help;  // with show_help

  int num_proc = 0;
  std::vector<Host> hosts;
  bool verbose = false;
  std::string output_filename;  // a directory in fact; the name is the option's
  bool prefix_timestamp = false;
  Variables variables;  // of the workers
  std::vector<std::string> warnings;
  std::vector<std::string> command;
};

// `arguments` without the program's name. An error is the user's mistake, worded for them.
Result<Options> parse_options(const std::vector<std::string>& arguments);

}  // namespace hvd
