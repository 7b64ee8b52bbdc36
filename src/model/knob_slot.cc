#include "model/knob_slot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "base/joined.h"
#include "base/number.h"

namespace hvd {
namespace {

constexpr std::string_view kLogLevels[] = {"trace", "debug", "info", "warning", "error", "fatal"};

std::string text_of(const Range& range) {
  std::string text = fmt::format("{:.0f} to {:.0f}", range.low, range.high);
  return range.multiple_of > 1 ? fmt::format("{}, a multiple of {}", text, range.multiple_of) : text;
}

template <class Number>
bool read_in_range(std::string_view text, const Range& range, Number& out) {
  auto read = read_number<Number>(text);
  if (!read) return false;
  Number value = *read;
  // Written so that NaN is rejected. Integers of more than 53 bits may be rounded here, but never into the range.
  if (!(static_cast<double>(value) >= range.low && static_cast<double>(value) <= range.high)) return false;
  if constexpr (std::is_integral_v<Number>) {
    if (value % static_cast<Number>(range.multiple_of) != 0) return false;
  }
  out = value;
  return true;
}

// Like strtol, so text such as "true" is 0.
bool read_flag(const char* text) { return std::strtol(text, nullptr, 10) > 0; }

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    size_t length = std::min(text.find(separator), text.size());
    if (length > 0) parts.emplace_back(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return parts;
}

bool is_hex(std::string_view text) {
  return text.size() % 2 == 0 && text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

std::string in_lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Parses a variable's value into its slot.
struct Reader {
  const char* value;
  const Range& range;

  template <class Number>
  bool operator()(Number* out) const {
    return read_in_range(value, range, *out);
  }
  template <class Number>
  bool operator()(std::optional<Number>* out) const {
    return read_in_range(value, range, out->emplace());
  }
  bool operator()(bool* out) const {
    *out = read_flag(value);
    return true;
  }
  bool operator()(std::optional<bool>* out) const {
    *out = read_flag(value);
    return true;
  }
  bool operator()(Negated out) const {
    *out.flag = !read_flag(value);
    return true;
  }
  bool operator()(Strict out) const {
    std::string_view text = value;
    *out.flag = text == "1";
    return text == "1" || text == "0";
  }
  bool operator()(std::string* out) const {
    *out = value;
    return true;
  }
  bool operator()(HexKey out) const {
    *out.digits = value;
    return is_hex(value);
  }
  bool operator()(MpiOrGloo out) const {
    *out.word = in_lower_case(value);
    return *out.word == "mpi" || *out.word == "gloo";
  }
  bool operator()(TextOrJson out) const {
    std::string lower = in_lower_case(value);
    *out.is_json = lower == "json";
    return lower == "json" || lower == "text";
  }
  bool operator()(NameList out) const {
    for (const std::string& name : split(value, ',')) {
      if (std::find(out.names->begin(), out.names->end(), name) == out.names->end()) out.names->push_back(name);
    }
    return true;
  }
  bool operator()(std::vector<std::string>* out) const {
    *out = split(value, ':');
    return true;
  }
  bool operator()(std::vector<int32_t>* out) const {
    for (const std::string& part : split(value, ',')) {
      if (!read_in_range(part, range, out->emplace_back())) return false;
    }
    return true;
  }
  bool operator()(LogLevel* out) const {
    std::string lower = in_lower_case(value);
    const auto* found = std::find(std::begin(kLogLevels), std::end(kLogLevels), lower);
    *out = found == std::end(kLogLevels) ? LogLevel::warning : static_cast<LogLevel>(found - std::begin(kLogLevels));
    return true;
  }
};

// The allowed values of a slot, for messages.
struct RangeText {
  const Range& range;

  template <class Number>
  std::string operator()(Number*) const {
    return text_of(range);
  }
  std::string operator()(bool*) const { return "0 or 1"; }
  std::string operator()(std::optional<bool>*) const { return "0 or 1"; }
  std::string operator()(Negated) const { return "0 or 1"; }
  std::string operator()(Strict) const { return "0 or 1"; }
  std::string operator()(std::string*) const { return "text"; }
  std::string operator()(HexKey) const { return "an even number of hexadecimal digits"; }
  std::string operator()(MpiOrGloo) const { return "mpi or gloo"; }
  std::string operator()(TextOrJson) const { return "text or json"; }
  std::string operator()(NameList) const { return "names separated by commas"; }
  std::string operator()(std::vector<std::string>*) const { return "paths separated by colons"; }
  std::string operator()(std::vector<int32_t>*) const { return text_of(range) + ", separated by commas"; }
  std::string operator()(LogLevel*) const { return joined(kLogLevels, ", "); }
};

struct DefaultText {
  template <class Number>
  std::string operator()(Number* value) const {
    return fmt::format("{}", *value);
  }
  template <class Number>
  std::string operator()(std::optional<Number>* value) const {
    return *value ? fmt::format("{}", **value) : "";
  }
  std::string operator()(bool* value) const { return *value ? "1" : "0"; }
  std::string operator()(std::optional<bool>* value) const { return *value ? (**value ? "1" : "0") : ""; }
  std::string operator()(Negated value) const { return *value.flag ? "0" : "1"; }
  std::string operator()(Strict value) const { return *value.flag ? "1" : "0"; }
  std::string operator()(std::string* value) const { return *value; }
  std::string operator()(HexKey value) const { return *value.digits; }
  std::string operator()(MpiOrGloo value) const { return *value.word; }
  std::string operator()(TextOrJson value) const { return *value.is_json ? "json" : "text"; }
  std::string operator()(NameList value) const { return joined(*value.names, ","); }
  std::string operator()(std::vector<std::string>* value) const { return joined(*value, ":"); }
  std::string operator()(std::vector<int32_t>* value) const { return joined(*value, ","); }
  std::string operator()(LogLevel* value) const { return std::string(kLogLevels[static_cast<size_t>(*value)]); }
};

}  // namespace

bool read_value(const Slot& slot, const char* text, const Range& range) {
  return std::visit(Reader{text, range}, slot);
}

std::string allowed_text(const Slot& slot, const Range& range) { return std::visit(RangeText{range}, slot); }

std::string value_text(const Slot& slot) { return std::visit(DefaultText{}, slot); }

}  // namespace hvd
