// Finds tensors that some ranks wait for and others have not submitted, and reports the state of these ranks. Pure.
// Thread rule: plain functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "negotiation/last_seen.h"
#include "negotiation/readiness.h"
#include "negotiation/request_table.h"

namespace hvd {

struct Stall {
  const Entry* entry = nullptr;
  std::vector<int32_t> missing;  // empty: all ranks have it pending, but other members of its group are missing
  bool fatal = false;            // its missing ranks are marked in the report
};

// The inputs of a report.
struct StallScene {
  const Readiness& readiness;
  const LastSeen& activity;
  const std::vector<std::string>& rank_names;
  TimePoint now;
};

// The open entries older than `limit`, oldest first.
std::vector<Stall> find_stalls(const RequestTable& table, const RankSet& joined, TimePoint now, Duration limit);

// The ranks that are missing in any of them, sorted.
std::vector<int32_t> all_missing(std::span<const Stall> stalls);

// The first missing rank: it is the origin of a failure because of the stall. Kind none: no rank is missing.
Origin late_rank(std::span<const Stall> stalls);

// Lists the waiting tensors, then the state of each missing rank; one line each.
std::string describe_stalls(std::span<const Stall> stalls, const StallScene& scene, std::string_view separator = "\n");

}  // namespace hvd
