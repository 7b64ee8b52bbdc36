#include "launcher/command_line/tunables.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>

#include "base/number.h"
#include "launcher/text/mistake.h"

namespace hvd {
namespace {

bool is_count(std::string_view text) { return read_number<int64_t>(text).value_or(-1) >= 0; }

bool are_counts(std::string_view text) {
  while (true) {
    size_t comma = text.find(',');
    if (!is_count(text.substr(0, comma))) return false;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

void set_variable(Variables& variables, std::string_view name, std::string value) {
  auto same = std::find_if(variables.begin(), variables.end(), [&](const auto& entry) { return entry.first == name; });
  if (same == variables.end()) {
    variables.emplace_back(name, std::move(value));
  } else {
    same->second = std::move(value);
  }
}

bool is_on(const Variables& variables, std::string_view name) {
  return std::any_of(variables.begin(), variables.end(),
                     [&](const auto& entry) { return entry.first == name && entry.second != "0"; });
}

Result<std::string> tunable_value(TunableKind kind, const std::string& text, std::string_view source) {
  auto expected = [&](std::string_view what) { return mistake(fmt::format("{} {}: expected {}", source, text, what)); };
  switch (kind) {
    case TunableKind::count:
      if (!is_count(text)) return expected("a whole number, 0 or more");
      return text;
    case TunableKind::counts:
      if (!are_counts(text)) return expected("whole numbers, 0 or more, separated by commas");
      return text;
    case TunableKind::mebibytes: {
      int64_t count = read_number<int64_t>(text).value_or(-1);
      if (count < 0 || count > INT64_MAX >> 20) return expected("a whole number of MiB, 0 or more");
      return std::to_string(count << 20);
    }
    case TunableKind::real: {
      double real = read_number<double>(text).value_or(-1);
      if (!std::isfinite(real) || real < 0) return expected("a number, 0 or more");
      return text;
    }
    case TunableKind::fraction: {
      double real = read_number<double>(text).value_or(-1);
      if (!(real >= 0 && real <= 1)) return expected("a number from 0 to 1");
      return text;
    }
    case TunableKind::path:
      if (text.empty()) return expected("a path");
      return text;
    case TunableKind::level: {
      std::string upper = text;
      std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
      for (std::string_view level : {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"})
        if (upper == level) return upper;
      return expected("TRACE, DEBUG, INFO, WARNING, ERROR or FATAL");
    }
  }
  return text;
}

}  // namespace hvd
