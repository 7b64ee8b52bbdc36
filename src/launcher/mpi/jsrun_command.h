// How jsrun, the launcher of IBM's Job Step Manager in LSF jobs, is called. Thread rule: pure functions.
#pragma once

#include <string>

#include "launcher/mpi/mpi_job.h"

namespace hvd {

// `rank_file` is the path of what rank_file_text() says; it is not used when there are --binding-args.
MpiStart jsrun_command(const std::string& program, const MpiJob& job, const std::string& rank_file);

// Which rank gets which cores of which host; `cores` is how many a host has.
std::string rank_file_text(const MpiJob& job, int cores);

}  // namespace hvd
