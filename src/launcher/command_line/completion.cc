#include <fmt/core.h>

#include <vector>

#include "base/joined.h"
#include "launcher/command_line/documents.h"
#include "launcher/command_line/option_table.h"

namespace hvd::launcher {
namespace {

enum class Values { none, file, folder, words, host, text };

Values values_of(const OptionRow& row) {
  std::string_view value = row.value;
  if (value.empty()) return Values::none;
  if (!choices_of(row).empty()) return Values::words;
  if (value == "FILE") return Values::file;
  if (value == "DIR") return Values::folder;
  return main_name(row) == "--hosts" ? Values::host : Values::text;
}

template <class Use>
void for_each_option(const Use& use) {  // row, synonyms, text
  for (const OptionRow& row : option_rows()) {
    if (!*row.group) continue;
    use(row, words_of(row.names), text_of(row));
    if (*row.opposite) use(row, words_of(row.opposite), "opposite of " + std::string(main_name(row)));
  }
}

// Names of options, for a `case` pattern.
template <class Wanted>
std::string names_where(std::string_view separator, const Wanted& is_wanted) {
  std::vector<std::string_view> names;
  for_each_option([&](const OptionRow& row, const auto& words, const std::string&) {
    if (is_wanted(row)) names.insert(names.end(), words.begin(), words.end());
  });
  return joined(names, separator);
}

std::string with_values(std::string_view separator, size_t count) {
  return names_where(separator, [&](const OptionRow& row) { return value_count(row) == count; });
}

std::string pattern(Values values) {
  return names_where("|", [&](const OptionRow& row) { return values_of(row) == values; });
}

std::string bash() {
  std::string choices;
  for (const OptionRow& row : option_rows())
    if (values_of(row) == Values::words && *row.group)
      choices += fmt::format("    {}) mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$word\") ;;\n",
                             joined(words_of(row.names), "|"), joined(choices_of(row), " "));
  return fmt::format(
      R"(# bash completion of horovodrun; made by horovodrun --print-completion bash
_horovodrun() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} i=1
  while ((i < COMP_CWORD)); do  # find the command; what follows completes as if it stood alone
    case ${{COMP_WORDS[i]}} in
    {0}) ((i += 2)) ;;
    {1}) ((i += 3)) ;;
    -*) ((++i)) ;;
    *) break ;;
    esac
  done
  if ((i < COMP_CWORD)); then
    if declare -F _command_offset >/dev/null; then
      _command_offset "$i"
    else
      compopt -o default
    fi
    return
  fi
  case ${{COMP_WORDS[COMP_CWORD - 1]}} in
{2}    {3}) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
    {4}) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
    {5}) mapfile -t COMPREPLY < <(compgen -A hostname -- "$word") ;;
    {6}) ;;
    *)
      if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W '{7}' -- "$word")
      else
        mapfile -t COMPREPLY < <(compgen -c -- "$word")
      fi
      ;;
  esac
}}
complete -F _horovodrun horovodrun
)",
      with_values("|", 1), with_values("|", 2), choices, pattern(Values::file), pattern(Values::folder),
      pattern(Values::host), pattern(Values::text), names_where(" ", [](const OptionRow&) { return true; }));
}

std::string zsh_quoted(std::string_view text) {
  std::string quoted;
  for (char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else if (c == '[' || c == ']' || c == ':' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else {
      quoted += c;
    }
  }
  return quoted;
}

std::string zsh_action(const OptionRow& row) {
  switch (values_of(row)) {
    case Values::none: return "";
    case Values::file: return ":file:_files";
    case Values::folder: return ":directory:_files -/";
    case Values::words: return fmt::format(":value:({})", joined(choices_of(row), " "));
    case Values::host: return ":hosts:_hosts";
    case Values::text: break;
  }
  std::string action;
  for (std::string_view value : words_of(row.value)) action += fmt::format(":{}: ", zsh_quoted(value));
  return action;
}

std::string zsh() {
  std::string text =
      "#compdef horovodrun\n# made by horovodrun --print-completion zsh\n"
      "_arguments -S \\\n";
  for_each_option([&](const OptionRow& row, const auto& names, const std::string& about) {
    for (std::string_view name : names)
      text += fmt::format("  '*{}[{}]{}' \\\n", name, zsh_quoted(about), zsh_action(row));
  });
  return text + "  '(-)1:command: _command_names -e' \\\n  '*::arguments:_normal'\n";
}

std::string fish_quoted(std::string_view text) {
  std::string quoted;
  for (char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return "'" + quoted + "'";
}

std::string fish() {
  std::string text = fmt::format(
      R"(# fish completion of horovodrun; made by horovodrun --print-completion fish
function __horovodrun_before_command
    set -l words (commandline -opc)[2..]
    while set -q words[1]
        switch $words[1]
            case {0}
                set -e words[1..2]
            case {1}
                set -e words[1..3]
            case '-*'
                set -e words[1]
            case '*'
                return 1
        end
    end
end
complete -c horovodrun -f -a '(__fish_complete_subcommand -- {0} {1})'
)",
      with_values(" ", 1), with_values(" ", 2));
  for_each_option([&](const OptionRow& row, const auto& names, const std::string& about) {
    text += "complete -c horovodrun -n __horovodrun_before_command";
    for (std::string_view name : names) {
      if (name.starts_with("--")) {
        text += fmt::format(" -l {}", name.substr(2));
      } else {
        text += fmt::format(" -{} {}", name.size() == 2 ? "s" : "o", name.substr(1));
      }
    }
    switch (values_of(row)) {
      case Values::none: break;
      case Values::file: text += " -r -F"; break;
      case Values::folder: text += " -x -a '(__fish_complete_directories)'"; break;
      case Values::words: text += fmt::format(" -x -a '{}'", joined(choices_of(row), " ")); break;
      case Values::host: text += " -x -a '(__fish_print_hostnames)'"; break;
      case Values::text: text += " -x"; break;
    }
    text += fmt::format(" -d {}\n", fish_quoted(about));
  });
  return text;
}

}  // namespace

std::string completion(std::string_view shell) {
  if (shell == "bash") return bash();
  return shell == "zsh" ? zsh() : fish();
}

}  // namespace hvd::launcher
