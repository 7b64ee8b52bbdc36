#include "launcher/command_line/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string_view>

#include "base/number.h"
#include "launcher/command_line/arguments.h"
#include "launcher/command_line/documents.h"
#include "launcher/command_line/option_table.h"
#include "launcher/hosts/hosts.h"

namespace hvd::launcher {
namespace {

using Action = Options::Action;

// Of options that exclude each other, and of a switch and its opposite, only one may be given.
Status check_exclusion(const std::vector<GivenOption>& given) {
  for (auto one = given.begin(); one != given.end(); ++one)
    for (auto other = given.begin(); other != one; ++other) {
      bool is_opposed = one->row == other->row && one->is_opposite != other->is_opposite;
      bool is_rival =
          one->row != other->row && *one->row->excludes && std::string_view(one->row->excludes) == other->row->excludes;
      if (is_opposed || is_rival)
        return invalid_argument(fmt::format("{} and {} exclude each other", other->spelling, one->spelling));
    }
  return {};
}

// The file first, so that the command line takes precedence.
Status set_values(const std::vector<GivenOption>& given, CommandLine& line) {
  std::string controller;
  for (const GivenOption& option : given)
    if (main_name(*option.row) == "--config-file") line.config_file = option.values[0];
  if (!line.config_file.empty()) {
    if (Status status = apply_config_file(line.config_file, line, controller); !status.ok()) return status;
  }
  for (const GivenOption& option : given) {
    Status status = set_option(*option.row, option.is_opposite, option.values, option.spelling, line);
    if (!status.ok()) return status;
    if (*option.row->deprecated)
      line.warnings.push_back(fmt::format("{} is deprecated, use {}", option.spelling, option.row->deprecated));
  }
  if (line.gloo || line.mpi || line.jsrun) return {};
  line.gloo = controller == "gloo";
  line.mpi = controller == "mpi";
  return {};
}

// Does not set variables that have no effect without another one.
void drop_unneeded(Variables& variables) {
  const Variables all = variables;
  for (const OptionRow& row : option_rows()) {
    auto [variable, needs] = variable_of(row);
    if (!needs.empty() && !is_on(all, needs))
      std::erase_if(variables, [name = variable](const auto& entry) { return entry.first == name; });
  }
}

void complete_variables(CommandLine& line, const Lookup& lookup) {
  drop_unneeded(line.variables);
  if (line.tcp) set_variable(line.variables, "NCCL_IB_DISABLE", "1");
  if (line.start_timeout) {
    set_variable(line.variables, "HOROVOD_START_TIMEOUT", std::to_string(*line.start_timeout));
  } else if (const char* text = lookup("HOROVOD_START_TIMEOUT")) {
    line.start_timeout = read_number<int>(text);  // the workers report an invalid number with its name
  }
}

Status too_few_slots(int wanted, int64_t slots, const std::string& whose) {
  return invalid_argument(fmt::format("{} processes requested, but {} {} slot{}; add slots or lower -np", wanted, whose,
                                      slots, slots == 1 ? "" : "s"));
}

// Fills in hosts and num_proc.
Status find_hosts(CommandLine& line, const Lookup& lookup) {
  if (!line.host_discovery_script.empty() || line.agents) {
    if (!line.np) return invalid_argument("how many ranks? -np is required");
    line.num_proc = *line.np;
    return {};
  }
  std::string whose = "the hosts have";
  if (!line.hosts_text.empty() || !line.hostfile.empty()) {
    auto hosts = line.hostfile.empty() ? parse_hosts(line.hosts_text, is_elastic(line)) : read_hostfile(line.hostfile);
    if (!hosts.ok()) return hosts.status();
    line.hosts = std::move(*hosts);
  } else {
    auto allocation = read_allocation(lookup);
    if (!allocation.ok()) return allocation.status();
    if (*allocation) {
      line.hosts = std::move((*allocation)->hosts);
      whose = fmt::format("the allocation of {} ({}) has", (*allocation)->scheduler, describe(line.hosts));
      // On a single host the user's number takes precedence, as without a scheduler: allocations often do not request
      // tasks.
      if (line.hosts.size() == 1) line.hosts[0].slots = line.np.value_or(line.hosts[0].slots);
    } else if (line.np || line.action == Action::doctor) {
      line.hosts = {{.name = "localhost", .slots = line.np.value_or(1)}};
    } else {
      return invalid_argument("how many ranks? -np is required");
    }
  }
  int64_t slots = std::accumulate(line.hosts.begin(), line.hosts.end(), int64_t{0},
                                  [](int64_t sum, const Host& host) { return sum + host.slots; });
  if (line.np.value_or(0) > slots) return too_few_slots(*line.np, slots, whose);
  line.num_proc = line.np.value_or(static_cast<int>(slots));
  return {};
}

Status check_elastic(const CommandLine& line) {
  int most = line.max_num_proc.value_or(line.num_proc), least = line.min_num_proc.value_or(line.num_proc);
  if (least > line.num_proc)
    return invalid_argument(fmt::format("--min-np {} is more than -np {}", least, line.num_proc));
  if (most < line.num_proc)
    return invalid_argument(fmt::format("--max-np {} is less than -np {}", most, line.num_proc));
  return {};
}

// Warns about options that have no effect.
void warn_of_useless(CommandLine& line, const std::vector<GivenOption>& given) {
  for (const GivenOption& option : given) {
    bool is_elastic_only = std::string_view(option.row->group) == "Elastic jobs";
    if (is_elastic_only && !is_elastic(line))
      line.warnings.push_back(
          fmt::format("{} has no effect without --min-np or --host-discovery-script", option.spelling));
  }
}

Status check_rendezvous(const std::string& text) {
  auto colon = text.rfind(':');
  auto host = parse_host(text.substr(0, colon));
  auto port = colon == std::string::npos ? std::nullopt : read_number<uint16_t>(text.substr(colon + 1));
  if (!host.ok() || !host->user.empty() || port.value_or(0) == 0)
    return invalid_argument(
        fmt::format("--rendezvous {}: expected HOST:PORT, as in node1:4000 or [fd00::1]:4000", text));
  return {};
}

// Constraints between options, apart from hosts and numbers.
Status check_together(const CommandLine& line, const Lookup& lookup) {
  bool has_json = line.action == Action::check_build || line.action == Action::doctor || line.action == Action::report;
  if (line.json && !has_json) return invalid_argument("--json goes with --check-build, --doctor or --report");
  if (!line.report_html.empty() && line.report.empty()) return invalid_argument("--report-html goes with --report");
  if (!line.rendezvous.empty()) {
    if (Status status = check_rendezvous(line.rendezvous); !status.ok()) return status;
    if (!line.agent && !line.agents) return invalid_argument("--rendezvous goes with --agent or --agents");
  }
  if (!line.key_file.empty() && !line.agent && !line.agents)
    return invalid_argument("--key-file goes with --agent or --agents");
  if (line.agent && line.agents) return invalid_argument("--agent and --agents exclude each other");
  if (line.agent && line.rendezvous.empty()) return invalid_argument("--agent needs --rendezvous HOST:PORT");
  if (line.agent && !line.command.empty())
    return invalid_argument("--agent takes no command: the launcher provides it");
  if (line.jsrun && !lookup("LSB_JOBID"))
    return invalid_argument("--jsrun works inside a job of LSF only (LSB_JOBID is not set)");
  return {};
}

// Only for processes that keep their rank and that horovodrun itself starts.
Status check_torch_env(const CommandLine& line) {
  if (!line.torch_env) return {};
  if (is_elastic(line))
    return invalid_argument("--torch-env does not go with elastic jobs: ranks change there, the variables cannot");
  if (line.mpi || line.jsrun)
    return invalid_argument(fmt::format("--torch-env does not go with {}, which starts the ranks in its own way",
                                        line.jsrun ? "--jsrun" : "--mpi"));
  return {};
}

Status show(CommandLine& line, std::string text) {
  line.action = Action::show_help;
  line.help = std::move(text);
  return {};
}

Status complete_line(CommandLine& line, const std::vector<GivenOption>& given, const Lookup& lookup) {
  if (line.wants_man_page) return show(line, man_page());
  if (line.wants_markdown) return show(line, markdown_page());
  if (line.wants_json) return show(line, options_json());
  if (!line.completion_shell.empty()) return show(line, completion(line.completion_shell));
  if (line.action == Action::show_help) return show(line, help_text());
  if (line.action == Action::show_version) return {};
  if (line.action == Action::top || line.action == Action::dump) {
    if (line.command.size() > 1) return invalid_argument("expected one process id of a horovodrun at most");
    return {};
  }
  if (!line.explained.empty()) {
    line.action = Action::explain;
    return line.command.empty() ? Status() : invalid_argument("--explain takes no command");
  }
  if (!line.report.empty()) line.action = Action::report;
  if (Status status = check_together(line, lookup); !status.ok()) return status;
  if (line.action == Action::report) {
    return line.command.empty() ? Status() : invalid_argument("--report takes no command");
  }
  if (line.action == Action::check_build || line.action == Action::build_mpi) return {};
  complete_variables(line, lookup);
  warn_of_useless(line, given);
  if (Status status = check_torch_env(line); !status.ok()) return status;
  if (line.agent) {
    line.action = Action::agent;
    return {};
  }
  if (line.action == Action::run && line.command.empty()) return invalid_argument("no command given");
  if (Status status = find_hosts(line, lookup); !status.ok()) return status;
  if (is_elastic(line)) {
    if (Status status = check_elastic(line); !status.ok()) return status;
  }
  if (!line.dry_run) return {};
  auto job = job_json(line);
  if (!job.ok()) return job.status();
  line.action = Action::dry_run;
  line.help = std::move(*job);
  return {};
}

}  // namespace

bool is_elastic(const Options& options) { return !options.host_discovery_script.empty() || options.min_num_proc; }

Result<Options> parse_options(const std::vector<std::string>& arguments, const Lookup& lookup) {
  auto parsed = parse_arguments(arguments);
  if (!parsed.ok()) return parsed.status();
  CommandLine line;
  line.command = std::move(parsed->command);
  Status status = check_exclusion(parsed->options);
  if (status.ok()) status = set_values(parsed->options, line);
  if (status.ok()) status = complete_line(line, parsed->options, lookup);
  if (!status.ok()) return status;
  return Options(std::move(line));
}

Result<Options> parse_options(const std::vector<std::string>& arguments) {
  return parse_options(arguments, [](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace hvd::launcher
