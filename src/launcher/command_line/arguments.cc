#include "launcher/command_line/arguments.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "launcher/command_line/closest.h"

namespace hvd::launcher {
namespace {

struct Name {
  std::string_view text;
  const OptionRow* row;
  bool is_opposite;
};

struct Resolved {
  Name name;
  size_t length;  // of the option in the word; the rest is its value
};

std::vector<Name> all_names() {
  std::vector<Name> names;
  for (const OptionRow& row : option_rows()) {
    for (std::string_view text : words_of(row.names)) names.push_back({text, &row, false});
    for (std::string_view text : words_of(row.opposite)) names.push_back({text, &row, true});
  }
  return names;
}

bool is_hidden(const Name& name) { return !*name.row->group; }

Status unknown_option(const std::vector<Name>& names, std::string_view word) {
  std::vector<std::string_view> candidates;
  for (const Name& name : names)
    if (!is_hidden(name)) candidates.push_back(name.text);
  std::string_view near = closest(word, candidates);
  std::string text = fmt::format("unknown option {}", word);
  if (!near.empty()) text += fmt::format("; did you mean {}?", near);
  return invalid_argument(std::move(text));
}

// -n4, -np4, -Hlocalhost: the longest single-dash name that starts the word. A number must be a valid one, so that a
// typing error such as -pn is not taken for a port.
const Name* find_attached(const std::vector<Name>& names, std::string_view word) {
  const Name* best = nullptr;
  for (const Name& name : names) {
    if (name.text.starts_with("--") || !word.starts_with(name.text) || value_count(*name.row) == 0) continue;
    bool is_number = std::holds_alternative<Number>(name.row->target);
    char next = word[name.text.size()];
    if (is_number ? !std::isdigit(static_cast<unsigned char>(next)) : name.text.size() > 2) continue;
    if (!best || name.text.size() > best->text.size()) best = &name;
  }
  return best;
}

Result<Name> complete(const std::vector<Name>& names, std::string_view word) {
  const Name* found = nullptr;
  for (const Name& name : names) {
    if (!name.text.starts_with(word) || is_hidden(name)) continue;
    if (found && (found->row != name.row || found->is_opposite != name.is_opposite))
      return invalid_argument(fmt::format("{} could be {} or {}", word, found->text, name.text));
    if (!found) found = &name;
  }
  if (!found) return unknown_option(names, word);
  return *found;
}

// Finds the option of a word.
Result<Resolved> resolve(const std::vector<Name>& names, std::string_view word) {
  size_t length = std::min(word.find('='), word.size());
  std::string_view text = word.substr(0, length);
  auto same = std::find_if(names.begin(), names.end(), [&](const Name& name) { return name.text == text; });
  if (same != names.end()) return Resolved{*same, length};
  if (!word.starts_with("--")) {
    const Name* attached = find_attached(names, word);
    if (!attached) return unknown_option(names, text);
    return Resolved{*attached, attached->text.size()};
  }
  auto completed = complete(names, text);
  if (!completed.ok()) return completed.status();
  return Resolved{*completed, length};
}

bool ends_reading(const OptionRow& row) {
  const Does* does = std::get_if<Does>(&row.target);
  return does && (does->action == Options::Action::show_help || does->action == Options::Action::show_version);
}

bool is_name(const std::vector<Name>& names, std::string_view word) {
  return std::any_of(names.begin(), names.end(), [&](const Name& name) { return name.text == word; });
}

}  // namespace

Result<Arguments> parse_arguments(const std::vector<std::string>& words) {
  const std::vector<Name> names = all_names();
  Arguments arguments;
  auto next = words.begin();
  while (next != words.end() && next->size() > 1 && next->front() == '-') {
    std::string_view word = *next++;
    if (word == "--") break;
    auto resolved = resolve(names, word);
    if (!resolved.ok()) return resolved.status();
    const OptionRow& row = *resolved->name.row;
    GivenOption given{&row, resolved->name.is_opposite, std::string(word.substr(0, resolved->length)), {}};
    size_t wanted = value_count(row);
    if (resolved->length < word.size()) {
      if (wanted == 0) return invalid_argument(fmt::format("{} takes no value", given.spelling));
      word.remove_prefix(resolved->length + (word[resolved->length] == '=' ? 1 : 0));
      given.values.emplace_back(word);
    }
    while (given.values.size() < wanted) {
      if (next == words.end() || is_name(names, *next))
        return invalid_argument(fmt::format("{} needs {}", given.spelling, wanted == 1 ? "a value" : "two values"));
      given.values.push_back(*next++);
    }
    arguments.options.push_back(std::move(given));
    if (ends_reading(row)) return arguments;
  }
  arguments.command.assign(next, words.end());
  return arguments;
}

}  // namespace hvd::launcher
