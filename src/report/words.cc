#include "report/words.h"

#include <fmt/core.h>

#include <cmath>

namespace hvd::report {

std::string duration(double seconds) {
  double size = std::fabs(seconds);
  if (size >= 10) return fmt::format("{:.1f} s", seconds);
  if (size >= 1) return fmt::format("{:.2f} s", seconds);
  if (size >= 0.1) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (size >= 0.001) return fmt::format("{:.1f} ms", seconds * 1e3);
  return fmt::format("{:.0f} us", seconds * 1e6);
}

std::string size_text(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.1f} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.1f} MB", bytes / 1e6);
  if (bytes >= 1e3) return fmt::format("{:.1f} kB", bytes / 1e3);
  return fmt::format("{:.0f} B", bytes);
}

std::string place_of(const RankTime& rank) { return rank.host.empty() ? "its host" : printable(rank.host); }

std::string printable(const std::string& text) {
  std::string shown = text;
  for (char& letter : shown) {
    if (static_cast<unsigned char>(letter) < ' ' || letter == '\x7f') letter = '?';
  }
  return shown;
}

}  // namespace hvd::report
