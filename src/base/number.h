// Parses a complete text as a number. Thread rule: pure function.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace hvd {

template <class Number>
std::optional<Number> read_number(std::string_view text) {
  Number number{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace hvd
