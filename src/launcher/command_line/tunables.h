// The options that do nothing but set one environment variable of the workers. A variable is set only when its option
// or key was given, so that one already in the environment survives.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace hvd {

using Variables = std::vector<std::pair<std::string, std::string>>;

enum class TunableKind { count, counts, mebibytes, real, fraction, path, level };

void set_variable(Variables& variables, std::string_view name, std::string value);
bool is_on(const Variables& variables, std::string_view name);  // there, and not 0

// The variable's value for an option's text, or an error that starts with `source`.
Result<std::string> tunable_value(TunableKind kind, const std::string& text, std::string_view source);

}  // namespace hvd
