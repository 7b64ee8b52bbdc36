#include <fmt/core.h>

#include <fstream>
#include <functional>
#include <sstream>
#include <string_view>

#include "base/number.h"
#include "launcher/hosts/hosts.h"

namespace hvd::launcher {
namespace {

using Words = std::vector<std::string>;
using ReadLine = std::function<Result<Host>(const Words&)>;

// The words of a line without its comment; spaces around '=' are ignored.
Words words_of_line(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::string text;
  for (char c : line) {
    if (c == '=')
      while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
    if (!(std::isspace(static_cast<unsigned char>(c)) && !text.empty() && text.back() == '=')) text += c;
  }
  std::istringstream stream(text);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

Result<std::vector<Host>> read_lines(const std::string& path, const ReadLine& read_line) {
  std::ifstream file(path);
  if (!file) return system_error("cannot read the host file", path);
  std::vector<Host> hosts;
  size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    Words words = words_of_line(line);
    if (words.empty()) continue;
    auto host = read_line(words);
    Status status = host.ok() ? merge_host(hosts, std::move(*host)) : host.status();
    if (!status.ok()) return invalid_argument(fmt::format("{}:{}: {}", path, number, status.message()));
  }
  if (file.bad()) return system_error("cannot read the host file", path);
  if (hosts.empty()) return invalid_argument(fmt::format("{}: contains no host", path));
  return hosts;
}

bool is_slots_key(std::string_view key) {
  return key == "slots" || key == "slot" || key == "cpu" || key == "cpus" || key == "count";
}

Result<Host> read_user_line(const Words& words) {
  auto host = parse_host(words[0]);
  if (!host.ok()) return host.status();
  for (size_t i = 1; i < words.size(); ++i) {
    std::string_view word = words[i];
    size_t equals = std::min(word.find('='), word.size());
    std::string_view key = word.substr(0, equals);
    if (key == "max_slots" || key == "max-slots") continue;
    if (!is_slots_key(key) || equals == word.size())
      return invalid_argument(fmt::format("'{}' is not valid; expected HOST slots=N", word));
    auto checked = parse_host(fmt::format("slots:{}", word.substr(equals + 1)));
    if (!checked.ok()) return invalid_argument(fmt::format("'{}': expected a number of slots, 1 or more", word));
    host->slots = checked->slots;
  }
  return host;
}

}  // namespace

Result<std::vector<Host>> read_hostfile(const std::string& path) { return read_lines(path, read_user_line); }

Result<std::vector<Host>> read_nodefile(const std::string& path) {
  return read_lines(path, [](const Words& words) { return parse_host(words[0]); });
}

Result<std::vector<Host>> read_pe_hostfile(const std::string& path) {
  return read_lines(path, [](const Words& words) -> Result<Host> {
    if (words.size() < 2) return invalid_argument("expected HOST SLOTS");
    return parse_host(fmt::format("{}:{}", words[0], words[1]));
  });
}

}  // namespace hvd::launcher
