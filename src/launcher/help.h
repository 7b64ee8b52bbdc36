// --help and the man page, made from the option table. Thread rule: pure functions.
#pragma once

#include <string>

namespace hvd {

std::string help_text();
std::string man_page();  // troff

}  // namespace hvd
