#include "launcher/options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "launcher/arguments.h"

namespace hvd {
namespace {

constexpr int kMostProcesses = 100000;  // catches a slip of the keyboard before it becomes a fork bomb

class HelpFormat : public CLI::Formatter {
 public:
  HelpFormat() { column_width(44); }
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: horovodrun -np N [OPTIONS] COMMAND [ARGUMENTS...]\n";
  }
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    std::string text = CLI::Formatter::make_group(std::move(group), is_positional, std::move(options));
    return text.substr(0, text.size() - 1);  // CLI11 adds a newline between groups, and begins each with one
  }
};

}  // namespace

Result<Options> parse_options(const std::vector<std::string>& arguments) {
  Options options;
  std::string hosts;
  bool version = false;

  CLI::App app("Starts a program once per rank and connects the ranks.", "horovodrun");
  app.formatter(std::make_shared<HelpFormat>());
  app.footer(
      "\nEverything from the first word that is not an option is the command:\n"
      "  horovodrun -np 4 python train.py --epochs 3");
  app.set_help_flag("-h,--help", "print this text")->group("Job");
  app.add_flag("-v,--version", version, "print the version")->group("Job");
  app.add_option("-n,--num-proc", options.num_proc, "number of ranks (also -np N)")->group("Job")->type_name("N");
  app.add_option("-H,--hosts", hosts, "where to run: HOST:SLOTS,... (default: localhost)")
      ->group("Job")
      ->type_name("LIST");
  app.add_flag("--gloo", options.gloo, "use the built-in transport, which is the default")->group("Job");
  app.add_flag("--verbose", options.verbose, "tell which rank is started where")->group("Output");
  app.add_option("--output-filename", options.output_filename,
                 "directory; each rank's output is also written to DIR/rank.N/stdout and stderr")
      ->group("Output")
      ->type_name("DIR");
  app.add_flag("--prefix-output-with-timestamp", options.prefix_timestamp,
               "start every line with the time (also -prefix-timestamp)")
      ->group("Output");
  add_tunables(app);

  auto split = split_arguments(app, arguments);
  if (!split.ok()) return split.status();
  std::reverse(split->own.begin(), split->own.end());  // the order CLI11 wants
  try {
    app.parse(split->own);
  } catch (const CLI::CallForHelp&) {
    options.action = Options::Action::show_help;
    options.help = app.help();
    return options;
  } catch (const CLI::ParseError& error) {
    return Status(Code::invalid_argument, error.what());
  }
  if (version) {
    options.action = Options::Action::show_version;
    return options;
  }

  auto variables = tunable_variables(app, options.warnings);
  if (!variables.ok()) return variables.status();
  options.variables = std::move(*variables);
  options.command = std::move(split->command);
  if (app.count("--num-proc") == 0) return Status(Code::invalid_argument, "how many ranks? -np is required");
  if (options.num_proc < 1 || options.num_proc > kMostProcesses)
    return Status(Code::invalid_argument,
                  fmt::format("-np {}: expected a number from 1 to {}", options.num_proc, kMostProcesses));
  if (options.command.empty()) return Status(Code::invalid_argument, "no command given");
  if (hosts.empty()) hosts = fmt::format("localhost:{}", options.num_proc);
  auto parsed = parse_hosts(hosts);
  if (!parsed.ok()) return parsed.status();
  options.hosts = std::move(*parsed);
  return options;
}

}  // namespace hvd
