// How mpirun and jsrun (the launcher of IBM's Job Step Manager in LSF jobs) are called. Thread rule: pure functions.
#pragma once

#include <string>

#include "launcher/mpi/flavour.h"
#include "launcher/mpi/mpi_job.h"

namespace hvd::launcher {

// `program` is the first word of the command.
MpiStart mpirun_command(const MpiVersion& version, const std::string& program, const MpiJob& job);

// The two kinds that there are.
MpiStart open_mpi_command(const MpiVersion& version, const std::string& program, const MpiJob& job);
MpiStart hydra_command(const MpiVersion& version, const std::string& program, const MpiJob& job);

// Names of all variables that the ranks get, sorted; those of the job, and those from here.
std::vector<std::string> exported_names(const MpiJob& job);

// `rank_file` is the path of what rank_file_text() says; it is not used when there are --binding-args.
MpiStart jsrun_command(const std::string& program, const MpiJob& job, const std::string& rank_file);

// Which rank gets which cores of which host; `cores` is how many a host has.
std::string rank_file_text(const MpiJob& job, int cores);

}  // namespace hvd::launcher
