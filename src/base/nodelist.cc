#include "base/nodelist.h"

#include <fmt/core.h>

#include <optional>

#include "base/number.h"

namespace hvd {
namespace {

constexpr size_t kMostNodes = 1 << 20;
constexpr size_t kMostDigits = 9;

Status bad(std::string_view kind, std::string_view text) {
  return Status(Code::invalid_argument, fmt::format("cannot read the {} '{}'", kind, text));
}

std::optional<int> read_digits(std::string_view text) {
  if (text.empty() || text.size() > kMostDigits || text.front() == '-') return std::nullopt;
  return read_number<int>(text);
}

// Expands a bracket such as "01-03,7"; numbers keep the width of the first.
std::optional<std::vector<std::string>> expand_bracket(std::string_view text) {
  std::vector<std::string> all;
  while (true) {
    size_t comma = std::min(text.find(','), text.size());
    std::string_view range = text.substr(0, comma);
    size_t dash = std::min(range.find('-'), range.size());
    std::string_view low_text = range.substr(0, dash);
    auto low = read_digits(low_text);
    auto high = dash < range.size() ? read_digits(range.substr(dash + 1)) : low;
    if (!low || !high || *low > *high || static_cast<size_t>(*high - *low) >= kMostNodes - all.size())
      return std::nullopt;
    for (int number = *low; number <= *high; ++number) all.push_back(fmt::format("{:0{}}", number, low_text.size()));
    if (comma == text.size()) return all;
    text.remove_prefix(comma + 1);
  }
}

// Expands one item of the list: text and brackets in turn, all combinations, the last bracket varying fastest.
bool expand_item(std::string_view text, std::vector<std::string>& nodes) {
  std::vector<std::string> found{""};
  while (!text.empty()) {
    size_t open = std::min(text.find('['), text.size());
    for (std::string& name : found) name += text.substr(0, open);
    if (text.substr(0, open).find(']') != std::string_view::npos) return false;
    text.remove_prefix(open);
    if (text.empty()) break;
    size_t close = text.find(']');
    if (close == std::string_view::npos) return false;
    auto parts = expand_bracket(text.substr(1, close - 1));
    if (!parts || found.size() * parts->size() > kMostNodes) return false;
    std::vector<std::string> longer;
    longer.reserve(found.size() * parts->size());
    for (const std::string& name : found)
      for (const std::string& part : *parts) longer.push_back(name + part);
    found = std::move(longer);
    text.remove_prefix(close + 1);
  }
  if (found.front().empty() || nodes.size() + found.size() > kMostNodes) return false;
  nodes.insert(nodes.end(), found.begin(), found.end());
  return true;
}

// The end of the first item: a comma outside brackets.
size_t end_of_item(std::string_view text) {
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') inside = true;
    if (text[i] == ']') inside = false;
    if (text[i] == ',' && !inside) return i;
  }
  return text.size();
}

}  // namespace

Result<std::vector<std::string>> expand_nodelist(std::string_view text) {
  std::vector<std::string> nodes;
  for (std::string_view rest = text;;) {
    size_t end = end_of_item(rest);
    if (!expand_item(rest.substr(0, end), nodes)) return bad("list of nodes", text);
    if (end == rest.size()) return nodes;
    rest.remove_prefix(end + 1);
  }
}

Result<std::vector<int>> expand_counts(std::string_view text) {
  std::vector<int> counts;
  for (std::string_view rest = text;;) {
    size_t comma = std::min(rest.find(','), rest.size());
    std::string_view item = rest.substr(0, comma);
    size_t times = item.find("(x");
    auto count = read_digits(item.substr(0, times));
    std::optional<int> repeat = 1;
    if (times != std::string_view::npos) {
      bool is_closed = item.ends_with(')');
      repeat = is_closed ? read_digits(item.substr(times + 2, item.size() - times - 3)) : std::nullopt;
    }
    if (!count || !repeat || static_cast<size_t>(*repeat) > kMostNodes - counts.size())
      return bad("numbers per node", text);
    counts.insert(counts.end(), static_cast<size_t>(*repeat), *count);
    if (comma == rest.size()) return counts;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace hvd
