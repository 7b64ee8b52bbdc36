// The commands of mpirun and jsrun (the launcher of IBM's Job Step Manager in LSF jobs). Thread rule: pure functions.
#pragma once

#include <string>

#include "launcher/mpi/flavour.h"
#include "launcher/mpi/mpi_job.h"

namespace hvd::launcher {

// `program` is the first word of the command.
MpiStart mpirun_command(const MpiVersion& version, const std::string& program, const MpiJob& job);

// The two kinds of mpirun.
MpiStart open_mpi_command(const MpiVersion& version, const std::string& program, const MpiJob& job);
MpiStart hydra_command(const MpiVersion& version, const std::string& program, const MpiJob& job);

// The sorted names of all variables for the ranks: those of the job, and inherited ones.
std::vector<std::string> exported_names(const MpiJob& job);

// `rank_file`: the path of a file with rank_file_text(); not used with --binding-args.
MpiStart jsrun_command(const std::string& program, const MpiJob& job, const std::string& rank_file);

// Assigns ranks to cores of hosts; `cores` is the number of cores of a host.
std::string rank_file_text(const MpiJob& job, int cores);

}  // namespace hvd::launcher
