// Where the value of a knob goes, and how its text is read and shown. For config.cc, which has the knobs.
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
struct Strict {  // 0 or 1 and nothing else: a slip must not switch protection off
  bool* flag;
};
struct HexKey {
  std::string* digits;
};
struct MpiOrGloo {  // one of these words, in lower case
  std::string* word;
};
struct NameList {  // several knobs may add to the same ones
  std::vector<std::string>* names;
};

// The type says how the text is read.
using Slot = std::variant<int32_t*, int64_t*, std::optional<int64_t>*, double*, std::optional<double>*, bool*,
                          std::optional<bool>*, Negated, Strict, std::string*, HexKey, MpiOrGloo, NameList,
                          std::vector<std::string>*, std::vector<int32_t>*, LogLevel*>;

struct Range {
  double low = 0, high = 0;  // both allowed; every bound is a whole number below 2^53, so exact
  int64_t multiple_of = 1;
};

bool read_value(const Slot& slot, const char* text, const Range& range);  // false: it is none that the slot takes
std::string allowed_text(const Slot& slot, const Range& range);           // the values that it takes, for people
std::string value_text(const Slot& slot);                                 // what it holds; empty: unset

}  // namespace hvd
