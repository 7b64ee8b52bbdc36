#include "launcher/command_line/tunables.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/joined.h"
#include "base/number.h"
#include "model/config.h"

namespace hvd::launcher {
namespace {

// Messages omit upper limits from here on.
constexpr double kNoLimit = 1e9;

bool contains(const TunableRange& range, double value) { return value >= range.low && value <= range.high; }

std::string limits(const TunableRange& range) {
  return range.high < kNoLimit ? fmt::format(" from {:.0f} to {:.0f}", range.low, range.high)
                               : fmt::format(", {:.0f} or more", range.low);
}

bool are_counts(std::string_view text, const TunableRange& range) {
  while (true) {
    size_t comma = text.find(',');
    auto count = read_number<int64_t>(text.substr(0, comma));
    if (!count || !contains(range, static_cast<double>(*count))) return false;
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

TunableRange tunable_range(TunableKind kind, std::string_view variable) {
  auto knob = knob_facts(variable);
  if (!knob) return {0, std::numeric_limits<double>::infinity()};
  double unit = kind == TunableKind::mebibytes ? 1 << 20 : 1;
  return {knob->low / unit, knob->high / unit};
}

Result<std::string> tunable_value(TunableKind kind, std::string_view variable, const std::string& text,
                                  std::string_view source) {
  auto expected = [&](std::string_view what) {
    return invalid_argument(fmt::format("{} {}: expected {}", source, text, what));
  };
  TunableRange range = tunable_range(kind, variable);
  switch (kind) {
    case TunableKind::count: {
      auto count = read_number<int64_t>(text);
      if (!count || !contains(range, static_cast<double>(*count))) return expected("a whole number" + limits(range));
      return text;
    }
    case TunableKind::counts:
      if (!are_counts(text, range)) return expected(fmt::format("whole numbers{}, separated by commas", limits(range)));
      return text;
    case TunableKind::mebibytes: {
      auto count = read_number<int64_t>(text);
      if (!count || !contains(range, static_cast<double>(*count)))
        return expected("a whole number of MiB" + limits(range));
      return std::to_string(*count << 20);
    }
    case TunableKind::real: {
      auto real = read_number<double>(text);
      if (!real || !std::isfinite(*real) || !contains(range, *real)) return expected("a number" + limits(range));
      return text;
    }
    case TunableKind::path:
      if (text.empty()) return expected("a path");
      return text;
    case TunableKind::level: {
      std::string upper = text;
      std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
      if (std::find(std::begin(kLevelNames), std::end(kLevelNames), upper) == std::end(kLevelNames))
        return expected("one of " + joined(kLevelNames, ", "));
      return upper;
    }
  }
  return text;
}

}  // namespace hvd::launcher
