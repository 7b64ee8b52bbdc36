#include "negotiation/readiness.h"

#include <fmt/core.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "negotiation/messages.h"
#include "negotiation/mismatch.h"

namespace hvd {
namespace {

Status broken(Rank rank, std::string what) {
  return {Code::unknown, fmt::format("rank {} broke the negotiation protocol: {}", index_of(rank), what)};
}

Status removed(int32_t process_set) {
  return {Code::precondition, fmt::format("process set {} was removed", process_set)};
}

// The ranks of the world that have joined take part in these.
bool goes_on_without_joined(Kind kind) { return kind == Kind::allreduce || kind == Kind::barrier; }

}  // namespace

Readiness::Readiness(int32_t world_size, const Acknowledgements& acknowledgements, NegotiationObserver* observer)
    : world_size_(world_size),
      acknowledgements_(acknowledgements),
      observer_(observer),
      sets_(world_size),
      table_(world_size),
      joins_(world_size) {}

Status Readiness::submit(Entry& entry, Submission submission) {
  int32_t set = entry.key.process_set;
  if (precedes_removal(set, submission.rank)) {
    answer_late(entry, std::move(submission), removed(set));
    return {};
  }
  if (Status status = check_submission(entry, submission); !status.ok()) return status;
  if (entry.owing.erase(submission.rank)) {
    answer_late(entry, std::move(submission), entry.owed);
    return {};
  }
  TimePoint now = submission.since;
  if (entry.state == Entry::State::idle) {
    table_.open(entry, *sets_.ranks(set), now);
    if (observer_ != nullptr) observer_->on_first_request(*submission.request);
  }
  record(entry, std::move(submission));
  if (entry.state == Entry::State::collecting && is_complete(entry)) complete(entry, now);
  return {};
}

Status Readiness::check_submission(const Entry& entry, const Submission& submission) const {
  const NameKey& key = entry.key;
  if (sets_.ranks(key.process_set) == nullptr) {
    return broken(submission.rank, fmt::format("{} is for the unknown process set {}", key.name, key.process_set));
  }
  if (!sets_.contains(key.process_set, submission.rank)) {
    return broken(submission.rank,
                  fmt::format("{} is for process set {}, which it is not in", key.name, key.process_set));
  }
  if (entry.submitted.contains(submission.rank)) {
    return broken(submission.rank, fmt::format("{} was submitted twice", key.name));
  }
  bool may_submit = key.process_set != kWorldSet || manages_sets(submission.request->kind) ||
                    !joins_.ranks().contains(submission.rank);
  if (!may_submit) return broken(submission.rank, fmt::format("{} was submitted after the rank had joined", key.name));
  if (entry.state == Entry::State::ready) {
    return broken(submission.rank, fmt::format("{} was submitted although it is complete", key.name));
  }
  return {};
}

// The rank wrote the request before it knew that the set is gone.
bool Readiness::precedes_removal(int32_t process_set, Rank rank) const {
  if (removals_.empty()) return false;
  auto removal = removals_.find(process_set);
  if (removal == removals_.end()) return false;
  return !removal->second.sent || acknowledgements_.processed_by(rank) < removal->second.message;
}

// What this rank asks for has failed already. An error reaches every rank that has the name pending, so a next
// attempt that others began meanwhile fails along.
void Readiness::answer_late(Entry& entry, Submission submission, Status error) {
  if (entry.state == Entry::State::ready || entry.submitted.contains(submission.rank)) return;
  TimePoint now = submission.since;
  AgreedRequest request = submission.request;
  bool was_open = entry.is_open();
  bool was_idle = entry.state == Entry::State::idle;
  if (was_idle && observer_ != nullptr) observer_->on_first_request(*request);
  entry.submitted.insert(submission.rank);
  entry.submissions.push_back(std::move(submission));
  if (was_open) {
    fail(entry, std::move(error), now);
  } else if (was_idle) {
    entry.state = Entry::State::failing;
    push(&entry, std::move(request), std::move(error), -1, now);
  }
}

void Readiness::record(Entry& entry, Submission submission) {
  const Request& request = *submission.request;
  if (observer_ != nullptr) observer_->on_rank_ready(request, submission.rank);
  if (entry.is_open() && !request.group.empty()) groups_.add(entry, request.group, request.group_size);
  entry.submitted.insert(submission.rank);
  entry.submissions.push_back(std::move(submission));
}

bool Readiness::is_complete(const Entry& entry) const {
  if (entry.submitted.size() == entry.set_size) return true;
  const RankSet& joined = joins_.ranks();
  if (joined.empty() || entry.key.process_set != kWorldSet) return false;
  if (manages_sets(entry.submissions.front().request->kind)) return false;
  return entry.submitted.count_union(joined) == world_size_;
}

Status Readiness::join(Rank rank, AgreedRequest request, TimePoint now) {
  if (request->process_set != kWorldSet) return broken(rank, "join is for the world only");
  if (observer_ != nullptr && joins_.ranks().empty()) observer_->on_first_request(*request);
  if (!joins_.join(rank)) return broken(rank, "it joined twice");
  if (observer_ != nullptr) observer_->on_rank_ready(*request, rank);
  std::vector<Entry*> completed;
  for (Entry* entry = table_.oldest(); entry != nullptr; entry = entry->newer) {
    if (entry->state == Entry::State::collecting && is_complete(*entry)) completed.push_back(entry);
  }
  for (Entry* entry : completed) complete(*entry, now);
  if (joins_.is_complete()) push(nullptr, std::move(request), {}, joins_.last(), now);
  return {};
}

void Readiness::complete(Entry& entry, TimePoint now) {
  if (Status error = judge(entry); !error.ok()) return reject(entry, std::move(error), now);
  if (!entry.groups.empty()) {
    entry.state = Entry::State::held;
    for (Entry* member : groups_.complete(entry)) {
      push(member, member->submissions.front().request, {}, -1, now);
    }
    return;
  }
  AgreedRequest request = entry.submissions.front().request;
  int32_t result = manages_sets(request->kind) ? change_sets(*request, now) : -1;
  push(&entry, std::move(request), {}, result, now);
}

Status Readiness::judge(Entry& entry) const {
  const AgreedRequest& first = entry.submissions.front().request;
  auto is_first = [&](const Submission& submission) { return submission.request == first; };
  if (!std::all_of(entry.submissions.begin(), entry.submissions.end(), is_first)) {
    auto by_rank = [](const Submission& a, const Submission& b) { return a.rank < b.rank; };
    std::sort(entry.submissions.begin(), entry.submissions.end(), by_rank);
    if (Status status = find_mismatch(entry.submissions); !status.ok()) return status;
  }
  if (Status status = judge_group(entry); !status.ok()) return status;
  if (Status status = judge_joins(entry); !status.ok()) return status;
  return find_violation(*entry.submissions.front().request, sets_, world_size_);
}

// Ranks agree about the name, but another member of the group may say otherwise.
Status Readiness::judge_group(const Entry& entry) const {
  if (entry.groups.empty()) return {};
  const Group& group = *entry.groups.front();
  uint32_t size = entry.submissions.front().request->group_size;
  if (size == group.size) return {};
  return {Code::precondition, fmt::format("mismatched sizes of group {}: {} members according to tensor {}, {} before",
                                          group.name, size, entry.key.name, group.size)};
}

Status Readiness::judge_joins(const Entry& entry) const {
  const Request& request = *entry.submissions.front().request;
  if (entry.submitted.size() == entry.set_size || goes_on_without_joined(request.kind)) return {};
  return {Code::precondition,
          fmt::format("{} is not supported while ranks have joined: tensor {}", name_of(request.kind), request.name)};
}

// Adds or removes the process set; what is pending on a removed one fails. Returns the id of a new set, else -1.
int32_t Readiness::change_sets(const Request& request, TimePoint now) {
  if (request.kind == Kind::add_process_set) return sets_.add(request.ranks);
  int32_t set = request.process_set;
  std::vector<Entry*> pending;
  for (Entry* entry = table_.oldest(); entry != nullptr; entry = entry->newer) {
    if (entry->key.process_set == set) pending.push_back(entry);
  }
  for (Entry* entry : pending) {
    if (entry->is_open()) reject(*entry, removed(set), now);  // else the failure of a group's last member released it
  }
  table_.forgive(set);
  sets_.remove(set);
  removals_[set] = {};
  return -1;
}

void Readiness::fail(Entry& entry, Status error, TimePoint now) {
  for (int32_t rank : missing_ranks(entry, joins_.ranks())) entry.owing.insert(Rank{rank});
  entry.owed = error;
  reject(entry, std::move(error), now);
}

void Readiness::reject(Entry& entry, Status error, TimePoint now) {
  std::vector<Entry*> released = groups_.fail(entry);
  table_.settle(entry, Entry::State::failing);
  push(&entry, entry.submissions.front().request, std::move(error), -1, now);
  for (Entry* member : released) push(member, member->submissions.front().request, {}, -1, now);
}

void Readiness::push(Entry* entry, AgreedRequest request, Status error, int32_t result, TimePoint now) {
  if (entry != nullptr && entry->is_open()) table_.settle(*entry, Entry::State::ready);
  if (ready_.empty()) ready_since_ = now;
  if (observer_ != nullptr) observer_->on_agreed(*request);
  ready_.push_back({.entry = entry, .request = std::move(request), .error = std::move(error), .result = result});
}

void Readiness::finish_ready(uint64_t message) {
  for (Ready& item : ready_) {
    if (item.request->kind == Kind::remove_process_set && item.error.ok()) {
      removals_[item.request->process_set] = {.sent = true, .message = message};
    }
    if (item.entry == nullptr) {
      joins_.start_over();
      table_.forgive(kWorldSet);  // who has joined meanwhile does not come back to what failed before
    } else {
      table_.reset(*item.entry);
      table_.release(*item.entry);
    }
  }
  ready_.clear();
}

}  // namespace hvd
