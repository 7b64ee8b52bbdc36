// Every option of horovodrun, in one table: the parser, --help, the man page, the shell completions,
// the configuration file and horovod.runner.options of Python are made from it. Thread rule: constant data.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/command_line/options.h"
#include "launcher/command_line/tunables.h"

namespace hvd::launcher {

// The values of the options as given; options.cc turns them into a job.
struct CommandLine : Options {
  std::optional<int> np;
  std::string hosts_text, hostfile, config_file;
  bool dry_run = false;
  bool wants_man_page = false, wants_markdown = false, wants_json = false;
  std::string completion_shell;
};

// The destination of an option's value; the type also determines how its text is parsed.
struct Flag {
  bool CommandLine::*field;
};
struct Text {
  std::string CommandLine::*field;
};
struct Choice {
  std::string CommandLine::*field;
  const char* values;  // separated by spaces
};
struct Number {
  std::optional<int> CommandLine::*field;
  int low, high;
};
struct Bounds {  // two numbers, the first not above the second
  std::optional<std::pair<int, int>> CommandLine::*field;
  int low, high;
};
struct Names {  // repeatable; all are collected
  std::vector<std::string> CommandLine::*field;
  bool is_list;  // separated by commas
};
struct Tunable {  // only sets a variable of the workers
  const char* variable;
  TunableKind kind;
  const char* needs = "";  // a variable that this one depends on
};
struct Switch {  // the same: 1, or 0 with the opposite
  const char* variable;
  const char* needs = "";
};
struct Does {
  Options::Action action;
};
using OptionTarget = std::variant<Flag, Text, Choice, Number, Bounds, Names, Tunable, Switch, Does>;

struct OptionRow {
  const char* names;          // separated by spaces; messages use the last
  const char* opposite = "";  // of a switch
  const char* value = "";     // placeholder; empty: a flag
  const char* group;          // a title of --help; empty: hidden
  OptionTarget target;
  const char* text = "";        // empty: the sentence of the knob that the option sets
  const char* config_key = "";  // path in the configuration file; a leading '!' inverts its bool
  const char* excludes = "";    // only one of the options with the same word here may be given
  const char* deprecated = "";  // what to use instead
  // Name in Python's Namespace if it differs from the option's; a leading '!' inverts it, and "-" means that there is
  // none.
  const char* attribute = "";
};

std::span<const OptionRow> option_rows();
std::span<const char* const> option_groups();  // in the order of --help

std::vector<std::string_view> words_of(std::string_view text);  // separated by spaces
std::string_view main_name(const OptionRow& row);
size_t value_count(const OptionRow& row);
std::string text_of(const OptionRow& row);
std::vector<std::string_view> choices_of(const OptionRow& row);  // empty: any value

struct WorkerVariable {
  std::string_view name, needs;  // as in Tunable; empty: none
};
WorkerVariable variable_of(const OptionRow& row);

// Reads `values` into `line`. `source` is what the error calls the option: its spelling, or the place in a file.
Status set_option(const OptionRow& row, bool is_opposite, const std::vector<std::string>& values,
                  std::string_view source, CommandLine& line);

}  // namespace hvd::launcher
