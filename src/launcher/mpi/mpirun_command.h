// How mpirun is called. Each MPI has its own options; what the user says with --mpi-args wins over ours.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "launcher/mpi/flavour.h"
#include "launcher/mpi/mpi_job.h"

namespace hvd {

// `program` is the first word of the command.
MpiStart mpirun_command(const MpiVersion& version, const std::string& program, const MpiJob& job);

// The two kinds that there are.
MpiStart open_mpi_command(const MpiVersion& version, const std::string& program, const MpiJob& job);
MpiStart hydra_command(const MpiVersion& version, const std::string& program, const MpiJob& job);

// Names of all variables that the ranks get, sorted; those of the job, and those from here.
std::vector<std::string> exported_names(const MpiJob& job);

}  // namespace hvd
