// Findings as text for a terminal, as JSON for programs, and as a page that needs nothing but itself.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "report/findings.h"

namespace hvd::report {

std::string render_text(const Findings& found);
std::string render_json(const Findings& found);
std::string render_html(const Findings& found);

}  // namespace hvd::report
