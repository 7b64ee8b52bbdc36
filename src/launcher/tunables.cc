#include "launcher/tunables.h"

#include <fmt/core.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>

namespace hvd {
namespace {

enum class Kind { count, mebibytes, real, fraction, path, level };

// An option with a value. `needs`: set only if that variable is set too, and not to 0.
struct Value {
  const char* option;
  const char* variable;
  Kind kind;
  const char* group;
  const char* text;
  const char* needs = "";
};

// A pair of options, one for each value of a variable.
struct Switch {
  const char* one;   // sets the variable to 1
  const char* zero;  // sets it to 0
  const char* variable;
  const char* group;
  const char* text;  // empty: a deprecated spelling, not in --help
  const char* needs = "";
};

constexpr const char* kTuning = "Tuning";
constexpr const char* kAutotune = "Autotuning";
constexpr const char* kTimeline = "Timeline";
constexpr const char* kStalls = "Stalls";
constexpr const char* kLog = "Log";
constexpr const char* kLibraries = "Libraries";

constexpr Switch kSwitches[] = {
    {"--hierarchical-allreduce", "--no-hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE", kTuning,
     "reduce inside each host first"},
    {"--hierarchical-allgather", "--no-hierarchical-allgather", "HOROVOD_HIERARCHICAL_ALLGATHER", kTuning,
     "gather inside each host first"},
    {"--torus-allreduce", "--no-torus-allreduce", "HOROVOD_TORUS_ALLREDUCE", kTuning,
     "reduce along the two dimensions of hosts and local ranks"},
    {"--autotune", "--no-autotune", "HOROVOD_AUTOTUNE", kAutotune, "find good values of the knobs while training"},
    {"--timeline-mark-cycles", "--no-timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES", kTimeline,
     "mark the start of every cycle", "HOROVOD_TIMELINE"},
    {"--no-stall-check", "--stall-check", "HOROVOD_STALL_CHECK_DISABLE", kStalls, "do not look for stalled ranks"},
    {"--mpi-threads-disable", "--no-mpi-threads-disable", "HOROVOD_MPI_THREADS_DISABLE", kLibraries,
     "start MPI without thread support"},
    {"--log-without-timestamp", "--log-with-timestamp", "HOROVOD_LOG_HIDE_TIME", kLog,
     "leave the time out of log lines"},
    {"--log-hide-timestamp", "--no-log-hide-timestamp", "HOROVOD_LOG_HIDE_TIME", kLog, ""},
};

constexpr Value kValues[] = {
    {"--fusion-threshold-mb", "HOROVOD_FUSION_THRESHOLD", Kind::mebibytes, kTuning,
     "fuse small tensors into messages of up to this many MiB"},
    {"--cycle-time-ms", "HOROVOD_CYCLE_TIME", Kind::real, kTuning,
     "wait this many milliseconds for more tensors before a message is sent"},
    {"--cache-capacity", "HOROVOD_CACHE_CAPACITY", Kind::count, kTuning, "plans that are remembered; 0: none"},
    {"--autotune-log-file", "HOROVOD_AUTOTUNE_LOG", Kind::path, kAutotune, "CSV file of what was tried",
     "HOROVOD_AUTOTUNE"},
    {"--autotune-warmup-samples", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", Kind::count, kAutotune,
     "samples that are thrown away", "HOROVOD_AUTOTUNE"},
    {"--autotune-steps-per-sample", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", Kind::count, kAutotune, "steps of one sample",
     "HOROVOD_AUTOTUNE"},
    {"--autotune-bayes-opt-max-samples", "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", Kind::count, kAutotune,
     "samples until the best values are kept", "HOROVOD_AUTOTUNE"},
    {"--autotune-gaussian-process-noise", "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", Kind::fraction, kAutotune,
     "how noisy samples are taken to be, 0 to 1", "HOROVOD_AUTOTUNE"},
    {"--timeline-filename", "HOROVOD_TIMELINE", Kind::path, kTimeline,
     "write a trace of every operation; open it in Perfetto"},
    {"--stall-check-warning-time-seconds", "HOROVOD_STALL_CHECK_TIME_SECONDS", Kind::count, kStalls,
     "warn when a rank is missing for so long"},
    {"--stall-check-shutdown-time-seconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", Kind::count, kStalls,
     "stop the job when a rank is missing for so long; 0: never"},
    {"--start-timeout", "HOROVOD_START_TIMEOUT", Kind::count, kLibraries, "seconds in which all ranks must have met"},
    {"--gloo-timeout-seconds", "HOROVOD_GLOO_TIMEOUT_SECONDS", Kind::count, kLibraries,
     "seconds a connection may take to be made"},
    {"--thread-affinity", "HOROVOD_THREAD_AFFINITY", Kind::count, kLibraries, "core of the communication thread"},
    {"--num-nccl-streams", "HOROVOD_NUM_NCCL_STREAMS", Kind::count, kLibraries, "NCCL streams"},
    {"--log-level", "HOROVOD_LOG_LEVEL", Kind::level, kLog, "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL"},
};

const char* placeholder(Kind kind) {
  switch (kind) {
    case Kind::count:
    case Kind::mebibytes: return "N";
    case Kind::real:
    case Kind::fraction: return "X";
    case Kind::path: return "FILE";
    case Kind::level: return "LEVEL";
  }
  return "";
}

template <class Number>
bool parse(const std::string& text, Number& number) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

Status bad_value(const Value& value, const std::string& text, std::string_view expected) {
  return Status(Code::invalid_argument, fmt::format("{} {}: expected {}", value.option, text, expected));
}

Result<std::string> to_variable(const Value& value, const std::string& text) {
  int64_t count = 0;
  double real = 0;
  switch (value.kind) {
    case Kind::count:
      if (!parse(text, count) || count < 0) return bad_value(value, text, "a whole number, 0 or more");
      return text;
    case Kind::mebibytes:
      if (!parse(text, count) || count < 0 || count > INT64_MAX >> 20)
        return bad_value(value, text, "a whole number of MiB, 0 or more");
      return std::to_string(count << 20);
    case Kind::real:
      if (!parse(text, real) || !std::isfinite(real) || real < 0) return bad_value(value, text, "a number, 0 or more");
      return text;
    case Kind::fraction:
      if (!parse(text, real) || !(real >= 0 && real <= 1)) return bad_value(value, text, "a number from 0 to 1");
      return text;
    case Kind::path: return text;
    case Kind::level: {
      std::string upper = text;
      std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
      for (std::string_view level : {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"})
        if (upper == level) return upper;
      return bad_value(value, text, "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL");
    }
  }
  return text;
}

bool given(const CLI::App& app, const char* option) { return app.count(option) > 0; }

bool is_on(const Variables& variables, std::string_view name) {
  return std::any_of(variables.begin(), variables.end(),
                     [&](const auto& entry) { return entry.first == name && entry.second != "0"; });
}

}  // namespace

void add_tunables(CLI::App& app) {
  for (const Switch& pair : kSwitches) {
    std::string text = fmt::format("{} (opposite: {})", pair.text, pair.zero);
    app.add_flag(pair.one)->group(*pair.text ? pair.group : "")->description(text);
    app.add_flag(pair.zero)->group("");
  }
  for (const Value& value : kValues)
    app.add_option(value.option)->group(value.group)->description(value.text)->type_name(placeholder(value.kind));
}

Result<Variables> tunable_variables(const CLI::App& app, std::vector<std::string>& warnings) {
  Variables all;
  for (const Value& value : kValues) {
    if (!given(app, value.option)) continue;
    auto text = to_variable(value, app.get_option(value.option)->results().back());
    if (!text.ok()) return text.status();
    all.emplace_back(value.variable, *text);
  }
  for (const Switch& pair : kSwitches) {
    if (!given(app, pair.one) && !given(app, pair.zero)) continue;
    if (given(app, pair.one) && given(app, pair.zero))
      return Status(Code::invalid_argument, fmt::format("{} and {} exclude each other", pair.one, pair.zero));
    if (!*pair.text) warnings.push_back("--[no-]log-hide-timestamp is deprecated, use --log-without-timestamp");
    all.emplace_back(pair.variable, given(app, pair.one) ? "1" : "0");
  }
  const Variables before = all;
  auto unneeded = [&](const auto& entry) {
    auto lacks = [&](const auto& row) {
      return entry.first == row.variable && *row.needs && !is_on(before, row.needs);
    };
    return std::any_of(std::begin(kValues), std::end(kValues), lacks) ||
           std::any_of(std::begin(kSwitches), std::end(kSwitches), lacks);
  };
  std::erase_if(all, unneeded);
  return all;
}

}  // namespace hvd
