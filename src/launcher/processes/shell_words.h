// Words as a shell reads and writes them: arguments in one string, and commands for people to paste.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd::launcher {

// Quotes and backslashes as in sh; nothing is expanded. An error when a quote is not closed.
Result<std::vector<std::string>> split_shell_words(std::string_view text);

std::string shell_quoted(std::string_view word);  // always in single quotes

// A command line that sh reads as these words; only those that need it are quoted.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace hvd::launcher
