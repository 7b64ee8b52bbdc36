// Finds tensors that some ranks wait for and others have not submitted, and says which ranks are where. Pure.
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
  std::vector<int32_t> missing;  // empty: all ranks have it pending, other members of its group are missing
  bool fatal = false;            // its missing ranks are marked in the report
};

// What a report is made from.
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

// The first rank that is missing: what fails for a stall fails because of it. Of no kind: none is missing.
Origin late_rank(std::span<const Stall> stalls);

// Which tensors wait, then what each missing rank is doing; one line each.
std::string describe_stalls(std::span<const Stall> stalls, const StallScene& scene, std::string_view separator = "\n");

}  // namespace hvd
