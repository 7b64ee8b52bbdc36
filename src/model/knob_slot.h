// The destination of a knob's value, and how its text is parsed and printed. Used by config.cc, which lists the knobs.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/log.h"

namespace hvd {

struct Negated {  // true switches the flag off
  bool* flag;
};
struct Strict {  // 0 or 1 and nothing else: a typing error must not turn protection off
  bool* flag;
};
struct HexKey {
  std::string* digits;
};
struct MpiOrGloo {  // one of these words, in lower case
  std::string* word;
};
struct TextOrJson {  // one of these words, in any case
  bool* is_json;
};
struct NameList {  // several knobs may add to the same list
  std::vector<std::string>* names;
};

// The type determines how the text is parsed.
using Slot = std::variant<int32_t*, int64_t*, std::optional<int64_t>*, double*, std::optional<double>*, bool*,
                          std::optional<bool>*, Negated, Strict, std::string*, HexKey, MpiOrGloo, TextOrJson, NameList,
                          std::vector<std::string>*, std::vector<int32_t>*, LogLevel*>;

struct Range {
  double low = 0, high = 0;  // both inclusive; every bound is a whole number below 2^53, so exact
  int64_t multiple_of = 1;
};

bool read_value(const Slot& slot, const char* text, const Range& range);  // false: the value is not allowed
std::string allowed_text(const Slot& slot, const Range& range);           // the allowed values, for messages
std::string value_text(const Slot& slot);                                 // the current value; empty: unset

}  // namespace hvd
