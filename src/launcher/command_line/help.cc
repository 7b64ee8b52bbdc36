#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "base/joined.h"
#include "launcher/command_line/documents.h"
#include "launcher/command_line/option_table.h"

namespace hvd::launcher {
namespace {

constexpr size_t kColumn = 30;  // where the texts start
constexpr size_t kWidth = 100;

constexpr std::string_view kUsage = "horovodrun [-np N] [OPTIONS] COMMAND [ARGUMENTS...]";
constexpr std::string_view kPurpose = "Starts a program once per rank and connects the ranks.";

std::string names_of(const OptionRow& row) {
  std::string names = joined(words_of(row.names), ", ");
  return *row.value ? fmt::format("{} {}", names, row.value) : names;
}

std::string text_with_opposite(const OptionRow& row) {
  return *row.opposite ? fmt::format("{} (opposite: {})", text_of(row), row.opposite) : text_of(row);
}

// Wraps `text` into lines that start at kColumn; the first continues at the end of `out`.
void append_wrapped(std::string& out, std::string_view text) {
  size_t column = kColumn;
  for (std::string_view word : words_of(text)) {
    if (column > kColumn && column + 1 + word.size() > kWidth) {
      out += "\n" + std::string(kColumn, ' ');
      column = kColumn;
    } else if (column > kColumn) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  out += '\n';
}

std::string help_line(const OptionRow& row) {
  std::string line = "  " + names_of(row);
  if (line.size() + 2 > kColumn) line += "\n" + std::string(kColumn, ' ');
  line.resize(std::max(line.size(), kColumn), ' ');
  append_wrapped(line, text_with_opposite(row));
  return line;
}

// Dashes that can be pasted, and no troff requests.
std::string troff(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
  }
  return escaped.starts_with('.') || escaped.starts_with('\'') ? "\\&" + escaped : escaped;
}

std::string quoted_names(std::string_view names, std::string_view value) {
  std::string text;
  for (std::string_view name : words_of(names)) {
    if (!text.empty()) text += ", ";
    text += name == words_of(names).back() && !value.empty() ? fmt::format("`{} {}`", name, value)
                                                             : fmt::format("`{}`", name);
  }
  return text;
}

std::string quoted_variable(const OptionRow& row) {
  std::string_view variable = variable_of(row).name;
  return variable.empty() ? "" : fmt::format("`{}`", variable);
}

std::string key_of(const OptionRow& row) {
  std::string_view key = row.config_key;
  if (key.empty()) return "";
  return key.starts_with('!') ? fmt::format("`{}`, inverted", key.substr(1)) : fmt::format("`{}`", key);
}

template <class Append>
void for_each_group(const Append& append) {
  for (const char* group : option_groups()) {
    std::vector<const OptionRow*> rows;
    for (const OptionRow& row : option_rows())
      if (std::string_view(row.group) == group) rows.push_back(&row);
    append(group, rows);
  }
}

}  // namespace

std::string help_text() {
  std::string text = fmt::format("{}\n\nUsage: {}\n", kPurpose, kUsage);
  for_each_group([&](std::string_view group, const auto& rows) {
    text += fmt::format("\n{}:\n", group);
    for (const OptionRow* row : rows) text += help_line(*row);
  });
  text +=
      "\nEverything from the first word that is not an option is the command:\n"
      "  horovodrun -np 4 python train.py --epochs 3\n"
      "  horovodrun -H node1:4,node2:4 python train.py\n";
  return text;
}

std::string man_page() {
  std::string page = fmt::format(
      ".TH HOROVODRUN 1 \"\" \"Horovod {}\" \"User Commands\"\n.nh\n"
      ".SH NAME\nhorovodrun \\- start a program once per rank and connect the ranks\n"
      ".SH SYNOPSIS\n.B {}\n"
      ".SH DESCRIPTION\n"
      "Starts COMMAND once for every rank, on this machine or on others, and gives each its rank. Their output is\n"
      "shown with the rank in front. When one fails, the others are stopped and the end of its output is shown.\n",
      HVD_VERSION, troff(kUsage));
  page += ".SH OPTIONS\n";
  for_each_group([&](std::string_view group, const auto& rows) {
    page += fmt::format(".SS {}\n", troff(group));
    for (const OptionRow* row : rows)
      page += fmt::format(".TP\n.B {}\n{}\n", troff(names_of(*row)), troff(text_with_opposite(*row)));
  });
  page +=
      ".SH HOSTS\n"
      "Without \\-H and \\-hostfile, the allocation of Slurm, LSF, PBS or Grid Engine is used, and without one this\n"
      "machine.\n"
      ".SH EXIT STATUS\n"
      "0 when every rank returned 0, 1 when one failed, 2 for a wrong command line, 128+n when signal n stopped the\n"
      "job.\n"
      ".SH EXAMPLES\n.nf\nhorovodrun \\-np 4 python train.py \\-\\-epochs 3\n"
      "horovodrun \\-H node1:4,node2:4 python train.py\n.fi\n";
  return page;
}

std::string markdown_page() {
  std::string page =
      "# The options of horovodrun\n\n"
      "All options of the command line and the configuration file.\n"
      "Printed by `horovodrun --print-markdown` from the table in `src/launcher/command_line/option_table.cc`; change "
      "it there.\n"
      "[launcher.md](launcher.md) explains how they work together.\n";
  for_each_group([&](std::string_view group, const auto& rows) {
    page += fmt::format("\n## {}\n\n| Option | Variable of the workers | Key of `--config-file` | Meaning |\n", group);
    page += "| --- | --- | --- | --- |\n";
    for (const OptionRow* row : rows) {
      std::string names = quoted_names(row->names, row->value);
      if (*row->opposite) names += " / " + quoted_names(row->opposite, "");
      page += fmt::format("| {} | {} | {} | {} |\n", names, quoted_variable(*row), key_of(*row), text_of(*row));
    }
  });
  return page;
}

}  // namespace hvd::launcher
