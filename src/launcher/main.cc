// horovodrun: starts one process per rank. See options.cc for the command line, run.cc for the life of a job.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agents/agent.h"
#include "launcher/agents/invitation.h"
#include "launcher/command_line/options.h"
#include "launcher/doctor/doctor.h"
#include "launcher/hosts/hosts.h"
#include "launcher/job/run.h"
#include "launcher/mpi/launcher_choice.h"
#include "launcher/mpi/run_mpi.h"
#include "launcher/observatory/top.h"
#include "launcher/processes/guard.h"
#include "report/report.h"

namespace {

constexpr int kUsageError = 2;

int usage_error(const hvd::Status& status) {
  fmt::print(stderr, "horovodrun: {} (horovodrun --help lists the options)\n", status.message());
  return kUsageError;
}

// How a launcher starts an agent (ssh.cc): --agent - [INVITATION]
int start_agent(const std::vector<std::string>& arguments) {
  std::optional<hvd::launcher::Invitation> invitation;
  if (arguments.size() > 2) {
    auto parsed = hvd::launcher::parse_invitation(arguments[2]);
    if (!parsed.ok()) return usage_error(parsed.status());
    invitation = std::move(*parsed);
  }
  return hvd::launcher::run_guarded("agent", [&] { return hvd::launcher::run_started_agent(invitation); });
}

// Descriptors opened later must not become one of the three.
void open_standard_streams() {
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", O_RDWR);
}

int show_build(const char* program, const hvd::launcher::Options& options) {
  hvd::launcher::BuildReport report = hvd::launcher::check_build(program, options.json, options.verbose);
  fmt::print("{}", report.text);
  if (!report.note.empty()) fmt::print(stderr, "horovodrun: {}\n", report.note);
  return 0;
}

int show_report(const hvd::launcher::Options& options) {
  auto report = hvd::report::make_report({options.report, options.report_html, options.json});
  if (!report.ok()) {
    fmt::print(stderr, "horovodrun: {}\n", report.status().message());
    return 1;
  }
  fmt::print("{}", *report);
  return 0;
}

int show_job(const hvd::launcher::Options& options, const std::vector<hvd::launcher::Slot>& slots,
             const hvd::launcher::LauncherChoice& choice, const char* program) {
  auto job = choice.is_built_in() ? hvd::Result<std::string>(options.help)
                                  : hvd::launcher::describe_mpi_job(options, slots, choice, program, options.help);
  if (!job.ok()) return usage_error(job.status());
  fmt::print("{}", *job);
  return 0;
}

std::string named_job(const hvd::launcher::Options& options) {
  return options.command.empty() ? "" : options.command[0];
}

std::string dump_folder(const hvd::launcher::Options& options) {
  const char* inherited = std::getenv("HOROVOD_DUMP_DIR");
  std::string folder = inherited == nullptr ? "" : inherited;
  for (const auto& [name, value] : options.variables)
    if (name == "HOROVOD_DUMP_DIR") folder = value;
  return folder;
}

int start_job(const hvd::launcher::Options& options, const char* program) {
  std::vector<hvd::launcher::Slot> slots;
  // otherwise the hosts are the agents or machines that connect
  if (!options.agents && !hvd::launcher::is_elastic(options)) {
    auto assigned = hvd::launcher::assign(options.hosts, options.num_proc);
    if (!assigned.ok()) return usage_error(assigned.status());
    slots = std::move(*assigned);
  }
  auto choice =
      hvd::launcher::choose_launcher(options, [](const char* name) -> const char* { return std::getenv(name); });
  if (!choice.ok()) return usage_error(choice.status());
  for (const std::string& warning : choice->warnings) fmt::print(stderr, "horovodrun: warning: {}\n", warning);
  if (options.action == hvd::launcher::Options::Action::dry_run) return show_job(options, slots, *choice, program);
  if (!choice->is_built_in()) return hvd::launcher::run_mpi_job(options, slots, *choice, program);
  return hvd::launcher::run_guarded("launcher", [&] { return hvd::launcher::run_job(options); });
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() >= 2 && arguments[0] == "--agent" && arguments[1] == "-") return start_agent(arguments);
  if (arguments.size() == 2 && arguments[0] == hvd::launcher::kProbeOption)
    return hvd::launcher::run_probe(arguments[1]);
  auto options = hvd::launcher::parse_options(arguments);
  if (!options.ok()) return usage_error(options.status());
  for (const std::string& warning : options->warnings) fmt::print(stderr, "horovodrun: warning: {}\n", warning);
  switch (options->action) {
    case hvd::launcher::Options::Action::show_help: fmt::print("{}", options->help); return 0;
    case hvd::launcher::Options::Action::show_version: fmt::print("{}\n", HVD_VERSION); return 0;
    case hvd::launcher::Options::Action::check_build: return show_build(argv[0], *options);
    case hvd::launcher::Options::Action::report: return show_report(*options);
    case hvd::launcher::Options::Action::build_mpi: return hvd::launcher::build_mpi(argv[0]);
    case hvd::launcher::Options::Action::agent:
      return hvd::launcher::run_guarded("agent", [&] { return hvd::launcher::run_agent(*options); });
    case hvd::launcher::Options::Action::doctor:
      return hvd::launcher::run_guarded("doctor", [&] { return hvd::launcher::run_doctor(*options, argv[0]); });
    case hvd::launcher::Options::Action::top: return hvd::launcher::run_top(named_job(*options));
    case hvd::launcher::Options::Action::dump:
      return hvd::launcher::run_dump(named_job(*options), dump_folder(*options));
    case hvd::launcher::Options::Action::explain: return hvd::launcher::run_explain(options->explained);
    case hvd::launcher::Options::Action::dry_run:
    case hvd::launcher::Options::Action::run: break;
  }
  return start_job(*options, argv[0]);
}
