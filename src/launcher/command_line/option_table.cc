#include "launcher/command_line/option_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <climits>

#include "base/joined.h"
#include "base/number.h"
#include "model/config.h"

namespace hvd::launcher {
namespace {

constexpr int kMostProcesses = 100000;  // a typing error must not become a fork bomb
constexpr int kMostSeconds = 1000000000;
constexpr int kLongestCooldown = 3600;

constexpr const char* kJob = "Job";
constexpr const char* kHosts = "Hosts";
constexpr const char* kOutput = "Output";
constexpr const char* kAgents = "Without ssh";
constexpr const char* kElastic = "Elastic jobs";
constexpr const char* kTuning = "Tuning";
constexpr const char* kAutotune = "Autotuning";
constexpr const char* kObservation = "Observation";
constexpr const char* kTimeline = "Timeline";
constexpr const char* kStalls = "Stalls";
constexpr const char* kLog = "Log";
constexpr const char* kLibraries = "Libraries";
constexpr const char* kControllers = "Controllers";
constexpr const char* kHidden = "";
constexpr const char* kProgramOnly = "-";  // other uses of the program: they do not describe a job
constexpr const char* kGroups[] = {kJob,      kHosts,  kAgents, kOutput,  kTuning,    kAutotune,   kObservation,
                                   kTimeline, kStalls, kLog,    kElastic, kLibraries, kControllers};

using Action = Options::Action;

// clang-format off
constexpr OptionRow kRows[] = {
    {.names = "-h --help", .group = kJob, .target = Does{Action::show_help}, .text = "print this text", .attribute = kProgramOnly},
    {.names = "-v --version", .group = kJob, .target = Does{Action::show_version}, .text = "print the version"},
    {.names = "-cb --check-build", .group = kJob, .target = Does{Action::check_build},
     .text = "list the frameworks, controllers and operations that this installation offers"},
    {.names = "--build-mpi", .group = kJob, .target = Does{Action::build_mpi},
     .text = "build Horovod's MPI library for the MPI of this machine, if it is not built yet, and print its path",
     .attribute = kProgramOnly},
    {.names = "--doctor", .group = kJob, .target = Does{Action::doctor},
     .text = "check that the hosts can run a job together, and suggest fixes if they cannot",
     .attribute = kProgramOnly},
    {.names = "--json", .group = kJob, .target = Flag{&CommandLine::json},
     .text = "with --check-build, --doctor and --report: print JSON", .attribute = kProgramOnly},
    {.names = "-np -n --num-proc", .value = "N", .group = kJob,
     .target = Number{&CommandLine::np, 1, kMostProcesses},
     .text = "number of ranks; without it, all slots of the hosts or of the scheduler's allocation"},
    {.names = "--config-file", .value = "FILE", .group = kJob, .target = Text{&CommandLine::config_file},
     .text = "YAML file with values for the options below; the command line takes precedence"},
    {.names = "--start-timeout", .value = "SECONDS", .group = kJob,
     .target = Number{&CommandLine::start_timeout, 0, kMostSeconds},
     .text = "time limit for all ranks to start and connect (default: HOROVOD_START_TIMEOUT, or 30)"},
    {.names = "--bind-to", .value = "WHAT", .group = kJob, .target = Choice{&CommandLine::bind_to, "core numa none"},
     .text = "bind every rank to its share of the cores (core), to a NUMA node (numa), or to nothing (none)"},
    {.names = "--torch-env", .group = kJob, .target = Flag{&CommandLine::torch_env},
     .text = "also set the variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, ...), for "
             "scripts that call torch.distributed"},
    {.names = "--dry-run", .group = kJob, .target = Flag{&CommandLine::dry_run},
     .text = "print the job that would be run, as JSON, and run nothing", .attribute = kProgramOnly},
    {.names = "--verbose", .group = kJob, .target = Flag{&CommandLine::verbose},
     .text = "print which rank starts where, or the mpirun command"},

    {.names = "-H --hosts", .value = "LIST", .group = kHosts, .target = Text{&CommandLine::hosts_text},
     .text = "where to run: HOST:SLOTS,... as in node1:4,me@node2:4,[fd00::3]:4; one slot if no number is given "
             "(default: the scheduler's allocation, or this machine)", .excludes = "hosts"},
    {.names = "-hostfile --hostfile", .value = "FILE", .group = kHosts, .target = Text{&CommandLine::hostfile},
     .text = "the same, one host per line: HOST slots=N", .excludes = "hosts"},
    {.names = "-p --ssh-port", .value = "PORT", .group = kHosts, .target = Number{&CommandLine::ssh_port, 1, 65535},
     .text = "port of ssh on the hosts"},
    {.names = "-i --ssh-identity-file", .value = "FILE", .group = kHosts,
     .target = Text{&CommandLine::ssh_identity_file}, .text = "private key for ssh"},
    {.names = "--ssh-strict", .group = kHosts, .target = Flag{&CommandLine::ssh_strict},
     .text = "only connect to hosts with known ssh keys"},
    {.names = "--disable-cache", .group = kHosts, .target = Flag{&CommandLine::disable_cache},
     .text = "has no effect: nothing is cached between jobs, and every job contacts all its hosts"},
    {.names = "--network-interfaces", .value = "LIST", .group = kHosts,
     .target = Names{&CommandLine::network_interfaces, true},
     .text = "interfaces to use between hosts, separated by commas (default: any that work)", .attribute = "nics"},
    {.names = "--network-interface", .value = "NAME", .group = kHosts,
     .target = Names{&CommandLine::network_interfaces, false}, .text = "one of them; may be repeated",
     .attribute = "nics"},
    {.names = "--tls", .group = kHosts, .target = Flag{&CommandLine::tls},
     .text = "encrypt all connections between hosts"},

    {.names = "--agents", .value = "N", .group = kAgents, .target = Number{&CommandLine::agents, 1, kMostProcesses},
     .text = "wait for N agents and run the job on them", .excludes = "hosts"},
    {.names = "--agent", .group = kAgents, .target = Flag{&CommandLine::agent},
     .text = "run as an agent: connect to --rendezvous and run what the launcher there requests",
     .attribute = kProgramOnly},
    {.names = "--rendezvous", .value = "HOST:PORT", .group = kAgents, .target = Text{&CommandLine::rendezvous},
     .text = "where the launcher listens for agents"},
    {.names = "--key-file", .value = "FILE", .group = kAgents, .target = Text{&CommandLine::key_file},
     .text = "file with the key shared by launcher and agents; - reads it from standard input"},

    {.names = "--output-filename", .value = "DIR", .group = kOutput, .target = Text{&CommandLine::output_filename},
     .text = "also write each rank's output to DIR/rank.N/stdout and stderr"},
    {.names = "-prefix-timestamp --prefix-output-with-timestamp", .group = kOutput,
     .target = Flag{&CommandLine::prefix_timestamp}, .text = "prefix every line with the time",
     .excludes = "timestamps"},

    {.names = "--fusion-threshold-mb", .value = "N", .group = kTuning,
     .target = Tunable{"HOROVOD_FUSION_THRESHOLD", TunableKind::mebibytes},
     .text = "fuse small tensors into messages of up to this many MiB", .config_key = "params.fusion_threshold_mb"},
    {.names = "--cycle-time-ms", .value = "X", .group = kTuning, .target = Tunable{"HOROVOD_CYCLE_TIME", TunableKind::real},
     .config_key = "params.cycle_time_ms"},
    {.names = "--cache-capacity", .value = "N", .group = kTuning,
     .target = Tunable{"HOROVOD_CACHE_CAPACITY", TunableKind::count},
     .config_key = "params.cache_capacity"},
    {.names = "--hierarchical-allreduce", .opposite = "--no-hierarchical-allreduce", .group = kTuning,
     .target = Switch{"HOROVOD_HIERARCHICAL_ALLREDUCE"}, .text = "reduce inside each host first",
     .config_key = "params.hierarchical_allreduce"},
    {.names = "--hierarchical-allgather", .opposite = "--no-hierarchical-allgather", .group = kTuning,
     .target = Switch{"HOROVOD_HIERARCHICAL_ALLGATHER"}, .text = "gather inside each host first",
     .config_key = "params.hierarchical_allgather"},
    {.names = "--torus-allreduce", .opposite = "--no-torus-allreduce", .group = kTuning,
     .target = Switch{"HOROVOD_TORUS_ALLREDUCE"},
     .text = "reduce along the two dimensions of hosts and local ranks", .config_key = "params.torus_allreduce"},

    {.names = "--autotune", .opposite = "--no-autotune", .group = kAutotune, .target = Switch{"HOROVOD_AUTOTUNE"},
     .text = "find good values of the knobs while training; the options below count only with it",
     .config_key = "autotune.enabled"},
    {.names = "--autotune-log-file", .value = "FILE", .group = kAutotune,
     .target = Tunable{"HOROVOD_AUTOTUNE_LOG", TunableKind::path, "HOROVOD_AUTOTUNE"},
     .config_key = "autotune.log_file"},
    {.names = "--autotune-warmup-samples", .value = "N", .group = kAutotune,
     .target = Tunable{"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", TunableKind::count, "HOROVOD_AUTOTUNE"},
     .config_key = "autotune.warmup_samples"},
    {.names = "--autotune-steps-per-sample", .value = "N", .group = kAutotune,
     .target = Tunable{"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", TunableKind::count, "HOROVOD_AUTOTUNE"},
     .config_key = "autotune.steps_per_sample"},
    {.names = "--autotune-bayes-opt-max-samples", .value = "N", .group = kAutotune,
     .target = Tunable{"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", TunableKind::count, "HOROVOD_AUTOTUNE"},
     .config_key = "autotune.bayes_opt_max_samples"},
    {.names = "--autotune-gaussian-process-noise", .value = "X", .group = kAutotune,
     .target = Tunable{"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", TunableKind::real, "HOROVOD_AUTOTUNE"},
     .config_key = "autotune.gaussian_process_noise"},

    {.names = "--top", .group = kObservation, .target = Does{Action::top},
     .text = "show what the job of this user on this machine does, or the one whose launcher's process id follows",
     .attribute = kProgramOnly},
    {.names = "--dump", .group = kObservation, .target = Does{Action::dump},
     .text = "gather operations, stacks and counters of all ranks of such a job into one file, and print its name",
     .attribute = kProgramOnly},
    {.names = "--explain", .value = "FILE", .group = kObservation, .target = Text{&CommandLine::explained},
     .text = "say in words what such a file shows", .attribute = kProgramOnly},
    {.names = "--status-port", .value = "PORT", .group = kObservation,
     .target = Tunable{"HOROVOD_STATUS_PORT", TunableKind::count},
     .text = "serve a live page about the job; its address is printed, with the token that it needs"},
    {.names = "--metrics-port", .value = "PORT", .group = kObservation,
     .target = Tunable{"HOROVOD_METRICS_PORT", TunableKind::count},
     .text = "on every host, serve metrics for Prometheus at /metrics"},
    {.names = "--observe-address", .value = "ADDRESS", .group = kObservation,
     .target = Tunable{"HOROVOD_OBSERVE_ADDRESS", TunableKind::path},
     .text = "where both are served (default: 127.0.0.1)"},
    {.names = "--dump-dir", .value = "DIR", .group = kObservation, .target = Tunable{"HOROVOD_DUMP_DIR", TunableKind::path},
     .text = "folder for what is gathered when the job fails or stalls; none: nothing is (default: a private one)"},

    {.names = "--timeline-filename", .value = "FILE", .group = kTimeline,
     .target = Tunable{"HOROVOD_TIMELINE", TunableKind::path},
     .text = "write a trace of every operation; open it in Perfetto", .config_key = "timeline.filename"},
    {.names = "--timeline-mark-cycles", .opposite = "--no-timeline-mark-cycles", .group = kTimeline,
     .target = Switch{"HOROVOD_TIMELINE_MARK_CYCLES", "HOROVOD_TIMELINE"},
     .config_key = "timeline.mark_cycles"},

    {.names = "--report", .value = "PATH", .group = kTimeline, .target = Text{&CommandLine::report},
     .text = "say where the time went in a timeline of all ranks: its file of rank 0, or the folder that it is in",
     .attribute = kProgramOnly},
    {.names = "--report-html", .value = "FILE", .group = kTimeline, .target = Text{&CommandLine::report_html},
     .text = "with --report: also write a page with plots", .attribute = kProgramOnly},

    {.names = "--no-stall-check", .opposite = "--stall-check", .group = kStalls,
     .target = Switch{"HOROVOD_STALL_CHECK_DISABLE"}, .config_key = "!stall_check.enabled"},
    {.names = "--stall-check-warning-time-seconds", .value = "N", .group = kStalls,
     .target = Tunable{"HOROVOD_STALL_CHECK_TIME_SECONDS", TunableKind::count},
     .config_key = "stall_check.warning_time_seconds"},
    {.names = "--stall-check-shutdown-time-seconds", .value = "N", .group = kStalls,
     .target = Tunable{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", TunableKind::count},
     .config_key = "stall_check.shutdown_time_seconds"},

    {.names = "--log-level", .value = "LEVEL", .group = kLog, .target = Tunable{"HOROVOD_LOG_LEVEL", TunableKind::level},
     .text = "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL", .config_key = "logging.level"},
    {.names = "--log-without-timestamp", .opposite = "--log-with-timestamp", .group = kLog,
     .target = Switch{"HOROVOD_LOG_HIDE_TIME"},
     .config_key = "!logging.with_timestamp", .excludes = "timestamps", .attribute = "!log_with_timestamp"},
    {.names = "--log-format", .value = "FORMAT", .group = kLog, .target = Tunable{"HOROVOD_LOG_FORMAT", TunableKind::path},
     .text = "text or json: what log lines of the ranks look like", .config_key = "logging.format"},
    {.names = "--log-hide-timestamp", .opposite = "--no-log-hide-timestamp", .group = kHidden,
     .target = Switch{"HOROVOD_LOG_HIDE_TIME"}, .excludes = "timestamps",
     .deprecated = "--log-without-timestamp or --log-with-timestamp", .attribute = "!log_with_timestamp"},

    {.names = "--host-discovery-script", .value = "FILE", .group = kElastic,
     .target = Text{&CommandLine::host_discovery_script},
     .text = "program that prints the current hosts, HOST or HOST:SLOTS per line", .excludes = "hosts"},
    {.names = "--min-np --min-num-proc", .value = "N", .group = kElastic,
     .target = Number{&CommandLine::min_num_proc, 1, kMostProcesses},
     .text = "continue while at least this many ranks are left (default: -np)"},
    {.names = "--max-np --max-num-proc", .value = "N", .group = kElastic,
     .target = Number{&CommandLine::max_num_proc, 1, kMostProcesses}, .text = "do not grow beyond this many ranks"},
    {.names = "--slots-per-host", .value = "N", .group = kElastic,
     .target = Number{&CommandLine::slots_per_host, 1, kMostProcesses},
     .text = "slots of hosts that the discovery script lists without a number", .attribute = "slots"},
    {.names = "--elastic-timeout", .value = "SECONDS", .group = kElastic,
     .target = Number{&CommandLine::elastic_timeout, 0, kMostSeconds},
     .text = "time to wait for enough slots (default: HOROVOD_ELASTIC_TIMEOUT, or 600)"},
    {.names = "--reset-limit", .value = "N", .group = kElastic,
     .target = Number{&CommandLine::reset_limit, 0, INT_MAX}, .text = "give up after this many changes of the hosts"},
    {.names = "--blacklist-cooldown-range", .value = "MIN MAX", .group = kElastic,
     .target = Bounds{&CommandLine::blacklist_cooldown, 1, kLongestCooldown},
     .text = "range of seconds before a failed host is retried", .attribute = "cooldown_range"},

    {.names = "--gloo-timeout-seconds", .value = "N", .group = kLibraries,
     .target = Tunable{"HOROVOD_GLOO_TIMEOUT_SECONDS", TunableKind::count},
     .text = "seconds allowed to establish a connection", .config_key = "library_options.gloo_timeout_seconds"},
    {.names = "--thread-affinity", .value = "CORES", .group = kLibraries,
     .target = Tunable{"HOROVOD_THREAD_AFFINITY", TunableKind::counts},
     .config_key = "library_options.thread_affinity"},
    {.names = "--num-nccl-streams", .value = "N", .group = kLibraries,
     .target = Tunable{"HOROVOD_NUM_NCCL_STREAMS", TunableKind::count}, .text = "NCCL streams",
     .config_key = "library_options.num_nccl_streams"},
    {.names = "--mpi-threads-disable", .opposite = "--no-mpi-threads-disable", .group = kLibraries,
     .target = Switch{"HOROVOD_MPI_THREADS_DISABLE"},
     .config_key = "library_options.mpi_threads_disable"},
    {.names = "--tcp", .group = kLibraries, .target = Flag{&CommandLine::tcp},
     .text = "use TCP instead of InfiniBand", .attribute = "tcp_flag"},

    {.names = "--gloo", .group = kControllers, .target = Flag{&CommandLine::gloo},
     .text = "the built-in launcher and transport, the default unless there are arguments for mpirun",
     .excludes = "controller", .attribute = "use_gloo"},
    {.names = "--mpi", .group = kControllers, .target = Flag{&CommandLine::mpi},
     .text = "start the ranks with mpirun; they communicate through MPI", .excludes = "controller",
     .attribute = "use_mpi"},
    {.names = "--jsrun", .group = kControllers, .target = Flag{&CommandLine::jsrun},
     .text = "start the ranks with jsrun, in a job of LSF", .excludes = "controller",
     .attribute = "use_jsrun"},
    {.names = "--mpi-args", .value = "ARGUMENTS", .group = kControllers, .target = Text{&CommandLine::mpi_args},
     .text = "arguments for mpirun, which is then used if available; write --mpi-args=\"...\""},
    {.names = "--binding-args", .value = "ARGUMENTS", .group = kControllers,
     .target = Text{&CommandLine::binding_args}, .text = "core binding arguments for mpirun or jsrun, instead of Horovod's own"},

    {.names = "--print-man", .group = kHidden, .target = Flag{&CommandLine::wants_man_page},
     .attribute = kProgramOnly},
    {.names = "--print-markdown", .group = kHidden, .target = Flag{&CommandLine::wants_markdown},
     .attribute = kProgramOnly},
    {.names = "--print-options", .group = kHidden, .target = Flag{&CommandLine::wants_json},
     .attribute = kProgramOnly},
    {.names = "--print-completion", .value = "SHELL", .group = kHidden,
     .target = Choice{&CommandLine::completion_shell, "bash zsh fish"}, .attribute = kProgramOnly},
};
// clang-format on

Status expected(std::string_view source, std::string_view text, std::string_view what) {
  return invalid_argument(fmt::format("{} {}: expected {}", source, text, what));
}

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Parses the values of an option into its target.
struct Setter {
  bool is_opposite;
  const std::vector<std::string>& values;
  std::string_view source;
  CommandLine& line;

  Status operator()(const Flag& target) const {
    line.*target.field = true;
    return {};
  }
  Status operator()(const Text& target) const {
    if (values[0].empty()) return invalid_argument(fmt::format("{}: its value is empty", source));
    line.*target.field = values[0];
    return {};
  }
  Status operator()(const Choice& target) const {
    auto choices = words_of(target.values);
    if (std::find(choices.begin(), choices.end(), values[0]) == choices.end())
      return expected(source, values[0], "one of " + joined(choices, ", "));
    line.*target.field = values[0];
    return {};
  }
  Status operator()(const Number& target) const {
    auto number = read_number<int>(values[0]);
    if (!number || *number < target.low || *number > target.high)
      return expected(source, values[0], fmt::format("a number from {} to {}", target.low, target.high));
    line.*target.field = *number;
    return {};
  }
  Status operator()(const Bounds& target) const {
    auto low = read_number<int>(values[0]), high = read_number<int>(values[1]);
    if (!low || !high || *low < target.low || *high > target.high || *low > *high)
      return expected(source, joined(values, " "),
                      fmt::format("two numbers from {} to {}, the smaller one first", target.low, target.high));
    line.*target.field = {*low, *high};
    return {};
  }
  Status operator()(const Names& target) const {
    if (!target.is_list && values[0].find(',') != std::string::npos)
      line.warnings.push_back(fmt::format("a list for {} is deprecated, use --network-interfaces", source));
    std::vector<std::string>& names = line.*target.field;
    for (std::string_view name : split_at_commas(values[0])) {
      if (name.empty()) return expected(source, values[0], "names separated by commas");
      if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
    }
    return {};
  }
  Status operator()(const Tunable& target) const {
    auto value = tunable_value(target.kind, target.variable, values[0], source);
    if (!value.ok()) return value.status();
    set_variable(line.variables, target.variable, std::move(*value));
    return {};
  }
  Status operator()(const Switch& target) const {
    set_variable(line.variables, target.variable, is_opposite ? "0" : "1");
    return {};
  }
  Status operator()(const Does& target) const {
    line.action = target.action;
    return {};
  }
};

}  // namespace

std::span<const OptionRow> option_rows() { return kRows; }
std::span<const char* const> option_groups() { return kGroups; }

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    size_t length = std::min(text.find(' '), text.size());
    if (length > 0) words.push_back(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return words;
}

std::string_view main_name(const OptionRow& row) { return words_of(row.names).back(); }

size_t value_count(const OptionRow& row) { return words_of(row.value).size(); }

std::string text_of(const OptionRow& row) {
  auto knob = *row.text ? std::nullopt : knob_facts(variable_of(row).name);
  if (!knob) return row.text;
  std::string text = knob->text;  // a sentence; the texts of options are phrases
  text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::vector<std::string_view> choices_of(const OptionRow& row) {
  if (const auto* choice = std::get_if<Choice>(&row.target)) return words_of(choice->values);
  if (const auto* tunable = std::get_if<Tunable>(&row.target); tunable && tunable->kind == TunableKind::level)
    return {std::begin(kLevelNames), std::end(kLevelNames)};
  return {};
}

WorkerVariable variable_of(const OptionRow& row) {
  if (const auto* tunable = std::get_if<Tunable>(&row.target)) return {tunable->variable, tunable->needs};
  if (const auto* one = std::get_if<Switch>(&row.target)) return {one->variable, one->needs};
  return {};
}

Status set_option(const OptionRow& row, bool is_opposite, const std::vector<std::string>& values,
                  std::string_view source, CommandLine& line) {
  return std::visit(Setter{is_opposite, values, source, line}, row.target);
}

}  // namespace hvd::launcher
