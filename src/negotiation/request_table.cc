#include "negotiation/request_table.h"

#include <algorithm>
#include <cassert>

namespace hvd {

Entry* RequestTable::find(NameView name) {
  auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

Entry& RequestTable::find_or_add(NameView name) {
  if (Entry* entry = find(name)) return *entry;
  return entries_.try_emplace(NameKey(name), name, world_size_).first->second;
}

void RequestTable::release(Entry& entry) {
  bool unused =
      entry.state == Entry::State::idle && entry.cached == nullptr && entry.evicted_plans == 0 && entry.owing.empty();
  if (unused) entries_.erase(entries_.find(entry.key.view()));
}

void RequestTable::open(Entry& entry, const std::vector<int32_t>& members, TimePoint now) {
  assert(entry.state == Entry::State::idle && entry.submissions.empty());
  entry.state = Entry::State::collecting;
  entry.members = &members;
  entry.set_size = static_cast<int32_t>(members.size());
  entry.since = now;
  entry.older = newest_;
  (newest_ != nullptr ? newest_->newer : oldest_) = &entry;
  newest_ = &entry;
}

void RequestTable::settle(Entry& entry, Entry::State state) {
  assert(entry.is_open() && (state == Entry::State::ready || state == Entry::State::failing));
  (entry.older != nullptr ? entry.older->newer : oldest_) = entry.newer;
  (entry.newer != nullptr ? entry.newer->older : newest_) = entry.older;
  entry.older = entry.newer = nullptr;
  entry.members = nullptr;
  entry.state = state;
}

void RequestTable::reset(Entry& entry) {
  assert(!entry.is_open());
  entry.state = Entry::State::idle;
  entry.submissions.clear();
  entry.submitted.clear();
  entry.groups.clear();
}

void RequestTable::forgive(int32_t process_set) {
  std::vector<Entry*> entries;
  for (auto& [key, entry] : entries_) {
    if (key.process_set == process_set && !entry.owing.empty()) entries.push_back(&entry);
  }
  for (Entry* entry : entries) {
    entry->owing.clear();
    release(*entry);
  }
}

std::vector<int32_t> missing_ranks(const Entry& entry, const RankSet& joined) {
  std::vector<int32_t> missing;
  for (int32_t rank : *entry.members) {
    bool excused = entry.key.process_set == kWorldSet && joined.contains(Rank{rank});
    if (!entry.submitted.contains(Rank{rank}) && !excused) missing.push_back(rank);
  }
  return missing;
}

std::vector<int32_t> waiting_ranks(const Entry& entry) {
  std::vector<int32_t> waiting;
  for (const Submission& submission : entry.submissions) waiting.push_back(index_of(submission.rank));
  std::sort(waiting.begin(), waiting.end());
  return waiting;
}

}  // namespace hvd
