#include "negotiation/readiness.h"

#include <fmt/core.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "negotiation/messages.h"
#include "negotiation/mismatch.h"

namespace hvd {
namespace {

// Kinds in which joined ranks take part.
bool goes_on_without_joined(Kind kind) { return kind == Kind::allreduce || kind == Kind::barrier; }

}  // namespace

Readiness::Readiness(Subtrees tree, NegotiationObserver* observer)
    : world_size_(tree.count_ranks()), observer_(observer), gathering_(world_size_, std::move(tree)) {}

Status Readiness::submit(Entry& entry, Arrival&& arrival, uint64_t position, TimePoint now) {
  int32_t set = entry.key.process_set;
  if (gathering_.precedes_failure(entry, position)) {
    gathering_.pay(entry, arrival);
    return {};
  }
  if (gathering_.precedes_removal(set, position)) {
    answer_late(entry, std::move(arrival), process_set_removed(set), true, now);
    return {};
  }
  if (Status status = gathering_.check(entry, arrival); !status.ok()) return status;
  if (entry.state == Entry::State::ready) {
    return broken(arrival.rank, fmt::format("{} was submitted although it is complete", entry.key.name));
  }
  if (gathering_.pay(entry, arrival)) {
    answer_late(entry, std::move(arrival), entry.owed, false, now);
    return {};
  }
  if (entry.state == Entry::State::idle) {
    table().open(entry, gathering_.members_of(entry, *arrival.request), arrival.since);
    if (auto* watching = observer()) watching->on_first_request(*arrival.request);
  } else if (arrival.since < entry.since) {
    table().backdate(entry, arrival.since);
  }
  record(entry, std::move(arrival));
  if (entry.state == Entry::State::collecting && gathering_.is_complete(entry)) completed_.push_back(&entry);
  return {};
}

void Readiness::finish_message(TimePoint now) {
  for (size_t i = 0; i < completed_.size(); i++) {
    if (completed_[i]->state == Entry::State::collecting) complete(*completed_[i], now);
  }
  completed_.clear();
  if (!probes_.empty()) answer_probes(now);
}

// The oldest transfer to the rank of the probe that only its sender has submitted and that no probe has found. The
// name of a probe is "<tag>#<anything>", that of a transfer "<source>><target>:<tag>#<number>".
Entry* Readiness::find_sent(const Entry& probe) const {
  std::string_view tag = std::string_view(probe.key.name).substr(0, probe.key.name.find('#') + 1);
  int32_t receiver = probe.members->ranks.front();
  for (Entry* entry = table().oldest(); entry != nullptr; entry = entry->newer) {
    const Request& request = *entry->arrivals.front().request;
    if (request.kind != Kind::transfer || entry->is_probed || request.root_rank == receiver) continue;
    if (request.process_set != pair_set(request.root_rank, receiver)) continue;
    if (!entry->submitted.contains(Rank{request.root_rank})) continue;
    std::string_view name = entry->key.name;
    if (name.substr(name.find(':') + 1).starts_with(tag)) return entry;
  }
  return nullptr;
}

void Readiness::answer_probes(TimePoint now) {
  std::erase_if(probes_, [&](const NameKey& key) {
    Entry* probe = table().find(key.view());
    if (probe == nullptr || probe->state != Entry::State::collecting) return true;  // it has failed
    Entry* sent = find_sent(*probe);
    if (sent == nullptr) return false;
    sent->is_probed = true;
    push(probe, probe->arrivals.front().request, {}, sent->arrivals.front().request->root_rank, now);
    return true;
  });
}

// The request of this rank has already failed. An error reaches every rank that has the name pending, so a new attempt
// that other ranks have started meanwhile fails, too.
void Readiness::answer_late(Entry& entry, Arrival&& arrival, Status error, bool precedes_removal, TimePoint now) {
  if (entry.state == Entry::State::ready) return;
  AgreedRequest request = arrival.request;
  bool was_open = entry.is_open();
  bool was_idle = entry.state == Entry::State::idle;
  if (auto* watching = observer(); was_idle && watching != nullptr) watching->on_first_request(*request);
  gathering_.record(entry, std::move(arrival), precedes_removal);
  if (was_open) {
    fail(entry, std::move(error), now);
  } else if (was_idle) {
    entry.state = Entry::State::failing;
    push(&entry, std::move(request), std::move(error), -1, now);
  }
}

void Readiness::record(Entry& entry, Arrival&& arrival) {
  const Request& request = *arrival.request;
  if (auto* watching = observer()) {
    for (int32_t rank : gathering_.ranks_of(arrival, entry.key.process_set, false)) {
      watching->on_rank_ready(request, Rank{rank});
    }
  }
  if (entry.is_open() && !request.group.empty()) groups_.add(entry, request.group, request.group_size);
  gathering_.record(entry, std::move(arrival));
}

Status Readiness::join(Rank rank, AgreedRequest request, TimePoint now) {
  if (request->process_set != kWorldSet) return broken(rank, "join is for the world only");
  finish_message(now);
  if (auto* watching = observer(); watching != nullptr && joined().empty()) watching->on_first_request(*request);
  if (!gathering_.joins().join(rank)) return broken(rank, "it joined twice");
  if (auto* watching = observer()) watching->on_rank_ready(*request, rank);
  std::vector<Entry*> completed;
  for (Entry* entry = table().oldest(); entry != nullptr; entry = entry->newer) {
    if (entry->state == Entry::State::collecting && gathering_.is_complete(*entry)) completed.push_back(entry);
  }
  for (Entry* entry : completed) complete(*entry, now);
  if (gathering_.joins().is_complete()) push(nullptr, std::move(request), {}, gathering_.joins().last(), now);
  return {};
}

void Readiness::complete(Entry& entry, TimePoint now) {
  if (Status error = judge(entry); !error.ok()) return reject(entry, std::move(error), now);
  if (entry.arrivals.front().request->kind == Kind::probe) return probes_.push_back(NameKey(entry.key.view()));
  if (!entry.groups.empty()) {
    entry.state = Entry::State::held;
    for (Entry* member : groups_.complete(entry)) {
      push(member, member->arrivals.front().request, {}, -1, now);
    }
    return;
  }
  AgreedRequest request = entry.arrivals.front().request;
  int32_t result = -1;
  if (manages_sets(request->kind)) {
    table().settle(entry, Entry::State::ready);
    result = change_sets(*request, now);
  }
  push(&entry, std::move(request), {}, result, now);
}

Status Readiness::judge(Entry& entry) const {
  const AgreedRequest& first = entry.arrivals.front().request;
  auto is_first = [&](const Arrival& arrival) { return arrival.request == first; };
  if (!std::all_of(entry.arrivals.begin(), entry.arrivals.end(), is_first)) {
    auto by_rank = [](const Arrival& a, const Arrival& b) { return a.rank < b.rank; };
    std::sort(entry.arrivals.begin(), entry.arrivals.end(), by_rank);
    if (Status status = find_mismatch(entry.arrivals); !status.ok()) return status;
  }
  if (Status status = judge_group(entry); !status.ok()) return status;
  if (Status status = judge_joins(entry); !status.ok()) return status;
  return find_violation(*entry.arrivals.front().request, sets(), world_size_);
}

// Ranks agree about the name, but another member of the group may have a different group size.
Status Readiness::judge_group(const Entry& entry) const {
  if (entry.groups.empty()) return {};
  const Group& group = *entry.groups.front();
  uint32_t size = entry.arrivals.front().request->group_size;
  if (size == group.size) return {};
  return {Code::precondition, fmt::format("mismatched sizes of group {}: {} members according to tensor {}, {} before",
                                          group.name, size, entry.key.name, group.size)};
}

Status Readiness::judge_joins(const Entry& entry) const {
  const Request& request = *entry.arrivals.front().request;
  if (entry.submitted.size() == entry.set_size || goes_on_without_joined(request.kind)) return {};
  return {Code::precondition,
          fmt::format("{} is not supported while ranks have joined: tensor {}", name_of(request.kind), request.name)};
}

// Adds or removes the process set; pending requests on a removed one fail. Returns the id of a new set, else -1.
int32_t Readiness::change_sets(const Request& request, TimePoint now) {
  if (adds_set(request.kind)) return gathering_.add_set(request.ranks);
  int32_t set = request.process_set;
  std::vector<Entry*> pending;
  for (Entry* entry = table().oldest(); entry != nullptr; entry = entry->newer) {
    if (entry->key.process_set == set) pending.push_back(entry);
  }
  for (Entry* entry : pending) {
    if (entry->is_open())
      reject(*entry, process_set_removed(set), now);  // otherwise the failure of a group's last member has released it
  }
  gathering_.remove_set(set);
  return -1;
}

void Readiness::settle_carried(Entry& entry, Arrival&& arrival) {
  record(entry, std::move(arrival));
  table().settle(entry, Entry::State::ready);
  if (auto* watching = observer()) watching->on_agreed(*entry.arrivals.front().request);
}

void Readiness::fail(Entry& entry, Status error, TimePoint now) {
  for (int32_t rank : missing_ranks(entry, joined())) entry.owing.insert(Rank{rank});
  entry.owed = error;
  reject(entry, std::move(error), now);
}

void Readiness::reject(Entry& entry, Status error, TimePoint now) {
  std::vector<Entry*> released = groups_.fail(entry);
  table().settle(entry, Entry::State::failing);
  push(&entry, entry.arrivals.front().request, std::move(error), -1, now);
  for (Entry* member : released) push(member, member->arrivals.front().request, {}, -1, now);
}

void Readiness::push(Entry* entry, AgreedRequest request, Status error, int32_t result, TimePoint now) {
  if (entry != nullptr && entry->is_open()) table().settle(*entry, Entry::State::ready);
  if (ready_.empty()) ready_since_ = now;
  if (auto* watching = observer()) watching->on_agreed(*request);
  ready_.push_back({.entry = entry, .request = std::move(request), .error = std::move(error), .result = result});
}

void Readiness::finish_ready(uint64_t message) {
  for (Ready& item : ready_) {
    if (removes_set(item.request->kind) && item.error.ok()) {
      gathering_.removal_sent(item.request->process_set, message);
    }
    if (item.entry == nullptr) {
      gathering_.joins().start_over();
      table().forgive(kWorldSet);  // a rank that has joined meanwhile does not resubmit requests that failed
    } else {
      if (!item.error.ok()) table().failed(*item.entry, message);
      table().reset(*item.entry);
      table().release(*item.entry);
    }
  }
  ready_.clear();
}

}  // namespace hvd
