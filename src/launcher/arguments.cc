#include "launcher/arguments.h"

#include <fmt/core.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

namespace hvd {
namespace {

// Single-dash words, which CLI11 would read as bundles of one-letter options.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kSpellings{{
    {"-np", "--num-proc"},
    {"-cb", "--check-build"},
    {"-hostfile", "--hostfile"},
    {"-prefix-timestamp", "--prefix-output-with-timestamp"},
}};

// Options of horovodrun that this version does not offer; better named than called unknown.
constexpr std::string_view kNotYet[] = {"--check-build",
                                        "--disable-cache",
                                        "--network-interfaces",
                                        "--network-interface",
                                        "--config-file",
                                        "-p",
                                        "--ssh-port",
                                        "-i",
                                        "--ssh-identity-file",
                                        "--min-np",
                                        "--min-num-proc",
                                        "--max-np",
                                        "--max-num-proc",
                                        "--slots-per-host",
                                        "--elastic-timeout",
                                        "--reset-limit",
                                        "--blacklist-cooldown-range",
                                        "--mpi-args",
                                        "--tcp",
                                        "--binding-args",
                                        "--hostfile",
                                        "--host-discovery-script",
                                        "--mpi",
                                        "--jsrun"};

std::vector<std::string> long_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// Insertions, deletions and replacements that turn one word into the other.
size_t distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      size_t replaced = diagonal + (from[i - 1] != to[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

Status unknown_option(const CLI::App& app, std::string_view name) {
  std::string best;
  size_t best_distance = name.size() / 3 + 1;
  auto consider = [&](std::string_view candidate) {
    size_t found = distance(name, candidate);
    if (found > best_distance || (found == best_distance && !best.empty())) return;
    best = candidate;
    best_distance = found;
  };
  for (const std::string& candidate : long_names(app)) consider(candidate);
  for (const auto& [spelling, meaning] : kSpellings)
    if (app.get_option_no_throw(std::string(meaning))) consider(spelling);
  std::string text = fmt::format("unknown option {}", name);
  if (!best.empty()) text += fmt::format("; did you mean {}?", best);
  return Status(Code::invalid_argument, std::move(text));
}

// The full name of the option that `name` stands for.
Result<std::string> resolve(const CLI::App& app, std::string_view name) {
  for (const auto& [spelling, meaning] : kSpellings)
    if (name == spelling) name = meaning;
  std::string known(name);
  if (app.get_option_no_throw(known)) return known;
  if (std::find(std::begin(kNotYet), std::end(kNotYet), name) != std::end(kNotYet))
    return Status(Code::invalid_argument, fmt::format("{} is not supported yet", name));
  if (!name.starts_with("--")) {
    std::string letter = known.substr(0, 2);  // -n4: one letter and its value
    if (app.get_option_no_throw(letter)) return letter;
    return unknown_option(app, name);
  }
  std::vector<std::string> candidates = long_names(app);
  std::erase_if(candidates, [&](const std::string& candidate) { return !candidate.starts_with(name); });
  if (candidates.empty()) return unknown_option(app, name);
  if (candidates.size() > 1)
    return Status(Code::invalid_argument, fmt::format("{} could be {} or {}", name, candidates[0], candidates[1]));
  return candidates[0];
}

}  // namespace

Result<Arguments> split_arguments(const CLI::App& app, const std::vector<std::string>& arguments) {
  Arguments split;
  auto next = arguments.begin();
  while (next != arguments.end() && next->size() > 1 && next->front() == '-') {
    std::string_view argument = *next++;
    if (argument == "--") break;
    size_t equals = argument.find('=');
    auto name = resolve(app, argument.substr(0, equals));
    if (!name.ok()) return name.status();
    const CLI::Option* option = app.get_option(*name);
    bool attached = name->size() == 2 && argument.size() > 2;
    if (attached) {
      split.own.emplace_back(argument);
      continue;
    }
    split.own.push_back(*name);
    if (equals != std::string_view::npos) {
      split.own.back() += argument.substr(equals);
    } else if (option->get_items_expected_max() > 0) {
      if (next == arguments.end()) return Status(Code::invalid_argument, fmt::format("{} needs a value", argument));
      // With '=', so that a value may start with a dash; one-letter options take theirs attached.
      split.own.back() += (name->size() == 2 ? "" : "=") + *next++;
    }
  }
  split.command.assign(next, arguments.end());
  return split;
}

}  // namespace hvd
