// Finds and reads the files of a timeline of all ranks, as streams. Called by report.cc.
// Thread rule: plain functions.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"
#include "report/trace.h"

namespace hvd::report {

inline constexpr size_t kMostRecords = 24 << 20;  // of about 64 bytes

// `path`: the file of rank 0, beside which those of the others are (all.json, all.rank1.json), or a folder with the
// files of one timeline. An error: there is none.
Result<Trace> read_trace(const std::string& path, size_t room = kMostRecords);

// Those of one timeline that were in memory; files without a rank, or with the same one, are named as problems.
Trace put_together(std::vector<RankTrace> ranks, std::vector<std::string> names, std::vector<std::string> kinds,
                   std::vector<std::string> problems);

}  // namespace hvd::report
