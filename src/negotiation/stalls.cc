#include "negotiation/stalls.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <span>

#include "base/joined.h"
#include "negotiation/groups.h"

namespace hvd {
namespace {

constexpr size_t kMaxNames = 6;   // in one list
constexpr size_t kMaxLines = 32;  // of tensors, and of ranks

// Names often start with their kind; others get it as a prefix.
std::string label_of(const Request& request) {
  std::string_view kind = name_of(request.kind);
  if (request.kind == Kind::barrier) return std::string(kind);
  if (request.name.find(kind) != std::string::npos) return request.name;
  return fmt::format("{} {}", kind, request.name);
}

std::string list_of(const std::vector<std::string>& texts) {
  size_t shown = std::min(texts.size(), kMaxNames);
  std::string list = joined(std::span(texts).first(shown), ", ");
  if (shown < texts.size()) list += fmt::format(" and {} more", texts.size() - shown);
  return list;
}

std::string rank_name(const StallScene& scene, int32_t rank) {
  size_t index = static_cast<size_t>(rank);
  return index < scene.rank_names.size() ? scene.rank_names[index] : fmt::format("rank {}", rank);
}

std::string seconds_text(Duration duration) { return fmt::format("{:.1f} s", seconds_of(duration)); }

const Request& request_of(const Stall& stall) { return *stall.entry->arrivals.front().request; }

// Stalls that are reported in one line: the same ranks wait for the same ranks in the same kind of operation.
bool belong_together(const Stall& a, const Stall& b) {
  return a.entry->key.process_set == b.entry->key.process_set && request_of(a).kind == request_of(b).kind &&
         a.missing == b.missing && a.fatal == b.fatal;
}

std::string what_is_missing(const Stall& stall) {
  if (!stall.missing.empty()) return "missing: " + text_of_ranks(stall.missing, stall.fatal ? "!" : "");
  const Group& group = *stall.entry->groups.front();
  return fmt::format("missing: other members of group {} ({} of {} are complete)", group.name,
                     group.complete + group.failed, group.size);
}

std::string describe_together(std::span<const Stall* const> stalls, const StallScene& scene) {
  const Stall& oldest = *stalls.front();
  std::vector<std::string> labels;
  for (const Stall* stall : stalls) labels.push_back(label_of(request_of(*stall)));
  int32_t set = oldest.entry->key.process_set;
  std::vector<int32_t> waiting = waiting_ranks(*oldest.entry);
  return fmt::format("{}{}: {} {} been waiting for {}; {}", list_of(labels),
                     set == kWorldSet ? "" : fmt::format(" on process set {}", set), text_of_ranks(waiting),
                     waiting.size() == 1 ? "has" : "have", seconds_text(scene.now - oldest.entry->since),
                     what_is_missing(oldest));
}

std::vector<std::string> pending_of(int32_t rank, const StallScene& scene) {
  std::vector<std::string> pending;
  for (const Entry* entry = scene.readiness.table().oldest(); entry != nullptr; entry = entry->newer) {
    bool is_member =
        entry->key.process_set == kWorldSet || scene.readiness.sets().contains(entry->key.process_set, Rank{rank});
    if (!is_member || !entry->submitted.contains(Rank{rank})) continue;
    const Subtrees& tree = scene.readiness.gathering().tree();
    auto is_own = [&](const Arrival& arrival) { return arrival.speaks_for(Rank{rank}, tree); };
    auto own = std::find_if(entry->arrivals.begin(), entry->arrivals.end(), is_own);
    pending.push_back(fmt::format("{} for {}", label_of(*own->request), seconds_text(scene.now - own->since)));
  }
  return pending;
}

std::string describe_rank(int32_t rank, const StallScene& scene) {
  if (scene.readiness.joined().contains(Rank{rank})) return "has joined";
  std::vector<std::string> pending = pending_of(rank, scene);
  if (!pending.empty()) return "has been waiting in " + list_of(pending);
  if (!scene.activity.has_submitted(Rank{rank})) return "has not submitted anything yet";
  const LastSeen::Finished* last = scene.activity.last_finished(Rank{rank}, scene.readiness.sets());
  if (last == nullptr) return "has nothing pending";
  return fmt::format("has nothing pending; last finished {} {} ago", label_of(*last->request),
                     seconds_text(scene.now - last->at));
}

std::vector<std::string> describe_missing(std::span<const Stall> stalls, const StallScene& scene) {
  std::set<int32_t> missing, fatal;
  for (const Stall& stall : stalls) {
    missing.insert(stall.missing.begin(), stall.missing.end());
    if (stall.fatal) fatal.insert(stall.missing.begin(), stall.missing.end());
  }
  std::vector<std::string> lines;
  for (int32_t rank : missing) {
    if (lines.size() == kMaxLines) {
      lines.push_back(fmt::format("and {} more ranks", missing.size() - kMaxLines));
      break;
    }
    lines.push_back(
        fmt::format("{}{} {}", fatal.contains(rank) ? "!" : "", rank_name(scene, rank), describe_rank(rank, scene)));
  }
  return lines;
}

}  // namespace

std::vector<Stall> find_stalls(const RequestTable& table, const RankSet& joined, TimePoint now, Duration limit) {
  std::vector<Stall> stalls;
  for (const Entry* entry = table.oldest(); entry != nullptr && now - entry->since >= limit; entry = entry->newer) {
    if (entry->arrivals.front().request->kind == Kind::probe) continue;  // a message may come at any time
    stalls.push_back({.entry = entry, .missing = missing_ranks(*entry, joined)});
  }
  return stalls;
}

Origin late_rank(std::span<const Stall> stalls) {
  for (const Stall& stall : stalls)
    if (!stall.missing.empty()) return {.kind = OriginKind::deadline, .rank = stall.missing.front()};
  return {};
}

std::string describe_stalls(std::span<const Stall> stalls, const StallScene& scene, std::string_view separator) {
  std::vector<std::vector<const Stall*>> together;
  for (const Stall& stall : stalls) {
    auto joins = [&](const std::vector<const Stall*>& others) { return belong_together(*others.front(), stall); };
    auto line = std::find_if(together.begin(), together.end(), joins);
    if (line == together.end()) line = together.insert(together.end(), std::vector<const Stall*>());
    line->push_back(&stall);
  }
  std::vector<std::string> lines;
  for (const auto& line : together) {
    if (lines.size() == kMaxLines) break;
    lines.push_back(describe_together(line, scene));
  }
  if (together.size() > kMaxLines) lines.push_back(fmt::format("and {} more like these", together.size() - kMaxLines));
  for (std::string& line : describe_missing(stalls, scene)) lines.push_back(std::move(line));
  return joined(lines, separator);
}

}  // namespace hvd
