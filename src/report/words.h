// Numbers as people read them. Thread rule: pure functions.
#pragma once

#include <string>

#include "report/findings.h"

namespace hvd::report {

std::string duration(double seconds);            // "12.3 ms"
std::string size_text(double bytes);             // "1.5 MB"
std::string place_of(const RankTime& rank);      // its host
std::string printable(const std::string& text);  // without control characters, which a terminal would obey

}  // namespace hvd::report
