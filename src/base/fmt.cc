// The only file that compiles fmt's formatting code. All others include <fmt/core.h>, which only declares it: that
// saves two thirds of the build time of a file, and the library still links no fmt at run time.
#define FMT_HEADER_ONLY
#include <fmt/format.h>

namespace hvd {

[[gnu::used]] std::string (*const kFormat)(fmt::string_view, fmt::format_args) = &fmt::vformat;
[[gnu::used]] void (*const kPrint)(std::FILE*, fmt::string_view, fmt::format_args) = &fmt::vprint;
[[gnu::used]] void (*const kPrintOut)(fmt::string_view, fmt::format_args) = &fmt::vprint;

}  // namespace hvd
