// --help, the man page and docs/options.md, made from the option table. Thread rule: pure functions.
#pragma once

#include <string>

namespace hvd {

std::string help_text();
std::string man_page();  // troff
std::string markdown_page();

}  // namespace hvd
