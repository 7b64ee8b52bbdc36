#include "negotiation/request_table.h"

#include <algorithm>
#include <cassert>

#include "negotiation/messages.h"

namespace hvd {

Members::Members(const Subtrees& tree, const std::vector<int32_t>& set)
    : by_child(static_cast<size_t>(tree.size())), lowest(static_cast<size_t>(tree.size()), -1) {
  for (int32_t rank : set) {
    Child child = tree.child_of(Rank{rank});
    if (child == kNoChild) continue;
    size_t index = static_cast<size_t>(index_of(child));
    ranks.push_back(rank);
    if (by_child[index]++ == 0) lowest[index] = rank;
  }
}

Entry* RequestTable::find(NameView name) {
  auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

Entry& RequestTable::find_or_add(NameView name) {
  if (Entry* entry = find(name)) return *entry;
  return entries_.try_emplace(NameKey(name), name, tree_).first->second;
}

void RequestTable::release(Entry& entry) {
  bool unused = entry.state == Entry::State::idle && entry.cached == nullptr && entry.evicted_plans == 0 &&
                entry.owing.empty() && entry.failed_in == 0;
  if (unused) entries_.erase(entries_.find(entry.key.view()));
}

void RequestTable::open(Entry& entry, const Members& members, TimePoint since) {
  assert(entry.state == Entry::State::idle && entry.arrivals.empty());
  entry.state = Entry::State::collecting;
  entry.members = &members;
  entry.set_size = static_cast<int32_t>(members.ranks.size());
  entry.since = since;
  list(entry);
}

// Inserts the entry into the list, after all that are as old; nearly always at the end.
void RequestTable::list(Entry& entry) {
  Entry* older = newest_;
  while (older != nullptr && older->since > entry.since) older = older->older;
  Entry*& from_older = older != nullptr ? older->newer : oldest_;
  entry.older = older;
  entry.newer = from_older;
  (entry.newer != nullptr ? entry.newer->older : newest_) = &entry;
  from_older = &entry;
  entry.is_listed = true;
}

void RequestTable::backdate(Entry& entry, TimePoint since) {
  if (since >= entry.since) return;
  entry.since = since;
  if (!entry.is_listed) return;
  unlist(entry);
  list(entry);
}

void RequestTable::unlist(Entry& entry) {
  if (!entry.is_listed) return;
  (entry.older != nullptr ? entry.older->newer : oldest_) = entry.newer;
  (entry.newer != nullptr ? entry.newer->older : newest_) = entry.older;
  entry.older = entry.newer = nullptr;
  entry.is_listed = false;
}

void RequestTable::settle(Entry& entry, Entry::State state) {
  assert(entry.is_open() && (state == Entry::State::ready || state == Entry::State::failing));
  unlist(entry);
  entry.members = nullptr;
  entry.state = state;
}

void RequestTable::reset(Entry& entry) {
  unlist(entry);
  entry.members = nullptr;
  entry.future_members.reset();
  entry.state = Entry::State::idle;
  entry.arrivals.clear();
  entry.submitted.clear();
  entry.groups.clear();
  entry.carried.by = CarriedAtRoot::By::none;
  entry.passed_on = 0;
  entry.at_once = false;
  entry.is_probed = false;
}

std::vector<Entry*> RequestTable::open_in(int32_t process_set) {
  std::vector<Entry*> entries;
  for (auto& [key, entry] : entries_) {
    if (key.process_set == process_set && entry.is_open()) entries.push_back(&entry);
  }
  std::sort(entries.begin(), entries.end(), [](const Entry* a, const Entry* b) { return a->since < b->since; });
  return entries;
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

void RequestTable::failed(Entry& entry, uint64_t message) {
  entry.failed_in = message;
  failures_.push_back({message, &entry});
}

void RequestTable::forget_failures(uint64_t processed_by_all) {
  while (!failures_.empty() && failures_.front().message <= processed_by_all) {
    Failure failure = failures_.front();
    failures_.pop_front();
    if (failure.entry->failed_in != failure.message) continue;  // it has failed again since
    failure.entry->failed_in = 0;
    release(*failure.entry);
  }
}

bool excuses_joined(const Entry& entry) {
  return entry.key.process_set == kWorldSet && !manages_sets(entry.arrivals.front().request->kind);
}

std::vector<int32_t> missing_ranks(const Entry& entry, const RankSet& joined) {
  bool may_join = excuses_joined(entry);
  std::vector<int32_t> missing;
  for (int32_t rank : entry.members->ranks) {
    bool is_excused = may_join && joined.contains(Rank{rank});
    if (!entry.submitted.contains(Rank{rank}) && !is_excused) missing.push_back(rank);
  }
  return missing;
}

std::vector<int32_t> waiting_ranks(const Entry& entry) {
  std::vector<int32_t> waiting;
  for (int32_t rank : entry.members->ranks) {
    if (entry.submitted.contains(Rank{rank})) waiting.push_back(rank);
  }
  return waiting;
}

}  // namespace hvd
