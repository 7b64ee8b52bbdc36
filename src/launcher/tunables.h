// The options that do nothing but set one environment variable of the workers. One table: option, variable, kind, text.
// A variable is set only when its option was given, so that one already in the environment survives.
// Thread rule: used once, by options.cc.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace hvd {

using Variables = std::vector<std::pair<std::string, std::string>>;

void add_tunables(CLI::App& app);

// What the parsed options say; deprecated spellings are reported in `warnings`.
Result<Variables> tunable_variables(const CLI::App& app, std::vector<std::string>& warnings);

}  // namespace hvd
