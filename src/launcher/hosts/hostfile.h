// Files that list hosts: the user's (--hostfile) and those of schedulers. Thread rule: each call reads a file.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/hosts/hosts.h"

namespace hvd {

// One host per line: HOST, HOST:N, HOST slots=N; also user@host and [IPv6]. Comments (#) and empty lines are skipped,
// max_slots=N is ignored.
Result<std::vector<Host>> read_hostfile(const std::string& path);

// One host per line and slot: repeated lines are slots (PBS, LSF).
Result<std::vector<Host>> read_nodefile(const std::string& path);

// HOST SLOTS and more columns that do not matter (Grid Engine).
Result<std::vector<Host>> read_pe_hostfile(const std::string& path);

}  // namespace hvd
