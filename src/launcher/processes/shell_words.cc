#include "launcher/processes/shell_words.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstring>

namespace hvd::launcher {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

bool is_plain(std::string_view word) {
  auto is_safe = [](unsigned char c) { return std::isalnum(c) || std::strchr("_-./:=,@%+", c) != nullptr; };
  return !word.empty() && std::all_of(word.begin(), word.end(), is_safe);
}

// Parses the rest of a quoted part, after its first quote.
bool take_quoted(std::string_view& text, char quote, std::string& word) {
  while (!text.empty()) {
    char c = text.front();
    text.remove_prefix(1);
    if (c == quote) return true;
    if (c == '\\' && quote == '"' && !text.empty() && std::strchr("\"\\$`", text.front()) != nullptr) {
      c = text.front();
      text.remove_prefix(1);
    }
    word += c;
  }
  return false;
}

}  // namespace

Result<std::vector<std::string>> split_shell_words(std::string_view text) {
  const std::string_view all = text;
  std::vector<std::string> words;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
    if (text.empty()) return words;
    std::string word;
    while (!text.empty() && kBlank.find(text.front()) == kBlank.npos) {
      char c = text.front();
      text.remove_prefix(1);
      if (c == '\'' || c == '"') {
        if (!take_quoted(text, c, word)) return invalid_argument(fmt::format("a quote is not closed in: {}", all));
      } else if (c == '\\' && !text.empty()) {
        word += text.front();
        text.remove_prefix(1);
      } else {
        word += c;
      }
    }
    words.push_back(std::move(word));
  }
}

std::string shell_quoted(std::string_view word) {
  std::string text = "'";
  for (char c : word) {
    if (c == '\'') {
      text += "'\\''";
    } else {
      text += c;
    }
  }
  return text + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    line += is_plain(word) ? word : shell_quoted(word);
  }
  return line;
}

}  // namespace hvd::launcher
