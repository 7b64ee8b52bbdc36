// Splits and joins words like a shell: arguments in one string, and commands for users to paste.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd::launcher {

// Quotes and backslashes as in sh, without expansion. An error if a quote is not closed.
Result<std::vector<std::string>> split_shell_words(std::string_view text);

std::string shell_quoted(std::string_view word);  // always in single quotes

// A command line that sh splits into these words; only words that need quotes have them.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace hvd::launcher
