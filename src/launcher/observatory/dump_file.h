// Files for dumps, which only their user can read. Thread rule: plain functions.
#pragma once

#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"

namespace hvd::launcher {

struct DumpFile {
  std::string path;
  UniqueFd descriptor;
};

// A new file in `folder`, which is made if it is not there. Empty: a folder of this user alone in TMPDIR, where only
// the newest files are kept.
Result<DumpFile> new_dump_file(const std::string& folder);
Status write_all(const DumpFile& file, std::string_view content);

}  // namespace hvd::launcher
