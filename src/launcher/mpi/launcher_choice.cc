#include "launcher/mpi/launcher_choice.h"

#include <fmt/core.h>

#include "base/joined.h"
#include "launcher/processes/programs.h"

namespace hvd::launcher {
namespace {

std::vector<std::string> options_for_mpirun(const Options& options) {
  std::vector<std::string> names;
  if (!options.mpi_args.empty()) names.emplace_back("--mpi-args");
  if (!options.binding_args.empty()) names.emplace_back("--binding-args");
  return names;
}

// One line for all names.
void warn(LauncherChoice& choice, const std::vector<std::string>& names, const std::string& why) {
  if (names.empty()) return;
  choice.warnings.push_back(
      fmt::format("{} {} ignored: {}", joined(names, " and "), names.size() == 1 ? "is" : "are", why));
}

Result<LauncherChoice> built_in(const Options& options, const std::string& why) {
  LauncherChoice choice;
  std::vector<std::string> names = options_for_mpirun(options);
  if (options.mpi) names.insert(names.begin(), "--mpi");
  if (options.jsrun) names.insert(names.begin(), "--jsrun");
  warn(choice, names, why);
  return choice;
}

Result<LauncherChoice> with_jsrun(const Lookup& lookup) {
  LauncherChoice choice{.jsrun = find_program("jsrun")};
  if (choice.jsrun.empty())
    return invalid_argument("--jsrun: there is no jsrun in PATH; load IBM's Job Step Manager, or leave --jsrun out");
  if (auto mpirun = find_mpirun(lookup); mpirun.ok()) choice.mpirun = std::move(*mpirun);
  return choice;
}

}  // namespace

Result<LauncherChoice> choose_launcher(const Options& options, const Lookup& lookup) {
  if (is_elastic(options)) return built_in(options, "elastic jobs are started without MPI");
  if (options.agents) return built_in(options, "agents work only with the built-in launcher");
  if (options.gloo) return built_in(options, "--gloo is the launcher without MPI");
  if (options.jsrun) return with_jsrun(lookup);
  if (!options.mpi && options_for_mpirun(options).empty()) return LauncherChoice();
  auto mpirun = find_mpirun(lookup);
  if (mpirun.ok()) return LauncherChoice{.mpirun = std::move(*mpirun)};
  if (options.mpi) return invalid_argument(fmt::format("--mpi: {}", mpirun.status().message()));
  return built_in(options, fmt::format("{}. The built-in launcher runs the job", mpirun.status().message()));
}

}  // namespace hvd::launcher
