// The one place where fmt's formatting code is compiled. Everyone else includes <fmt/core.h>, which only declares it:
// that takes two thirds off the build time of a file, and the library still links no fmt at run time.
#define FMT_HEADER_ONLY
#include <fmt/format.h>

namespace hvd {

[[gnu::used]] std::string (*const kFormat)(fmt::string_view, fmt::format_args) = &fmt::vformat;
[[gnu::used]] void (*const kPrint)(std::FILE*, fmt::string_view, fmt::format_args) = &fmt::vprint;
[[gnu::used]] void (*const kPrintOut)(fmt::string_view, fmt::format_args) = &fmt::vprint;

}  // namespace hvd
