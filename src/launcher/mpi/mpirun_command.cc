#include "launcher/mpi/mpirun_command.h"

#include <set>

namespace hvd {

std::vector<std::string> exported_names(const MpiJob& job) {
  std::set<std::string> names(job.inherited.begin(), job.inherited.end());
  for (const auto& [name, value] : job.variables) names.insert(name);
  return {names.begin(), names.end()};
}

MpiStart mpirun_command(const MpiVersion& version, const std::string& program, const MpiJob& job) {
  return is_open_mpi_kind(version.flavour) ? open_mpi_command(version, program, job)
                                           : hydra_command(version, program, job);
}

}  // namespace hvd
