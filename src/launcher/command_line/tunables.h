// Options that only set one environment variable of the workers. A variable is set only if its option or key was given,
// so that one that is already in the environment is kept. Ranges come from the knob table (model/config.cc). Thread
// rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace hvd::launcher {

using Variables = std::vector<std::pair<std::string, std::string>>;

enum class TunableKind { count, counts, mebibytes, real, path, level };
constexpr std::string_view kLevelNames[] = {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"};

struct TunableRange {  // both ends inclusive
  double low, high;
};
// The values that an option of this kind accepts, in its own unit. Variables that are not knobs of the engine have no
// upper limit.
TunableRange tunable_range(TunableKind kind, std::string_view variable);

void set_variable(Variables& variables, std::string_view name, std::string value);
bool is_on(const Variables& variables, std::string_view name);  // it is set, and not 0

// The variable's value for an option's text, or an error that starts with `source`.
Result<std::string> tunable_value(TunableKind kind, std::string_view variable, const std::string& text,
                                  std::string_view source);

}  // namespace hvd::launcher
