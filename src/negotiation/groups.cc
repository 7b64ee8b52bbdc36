#include "negotiation/groups.h"

#include <algorithm>
#include <cassert>

namespace hvd {

void Groups::add(Entry& entry, std::string_view name, uint32_t size) {
  for (const Group* group : entry.groups) {
    if (group->name == name) return;
  }
  Group& group = filling(entry.key.process_set, name, size);
  group.members.push_back(&entry);
  entry.groups.push_back(&group);
  if (group.seen() == group.size) filling_.erase(filling_.find(NameView{group.process_set, group.name}));
}

Group& Groups::filling(int32_t process_set, std::string_view name, uint32_t size) {
  NameView key{process_set, name};
  if (auto found = filling_.find(key); found != filling_.end()) return *found->second;
  Group& group = groups_.emplace_back();
  group.name = name;
  group.process_set = process_set;
  group.size = size;
  group.place = std::prev(groups_.end());
  filling_.emplace(NameKey(key), &group);
  return group;
}

std::vector<Entry*> Groups::complete(Entry& entry) {
  assert(entry.groups.size() == 1);
  Group& group = *entry.groups.front();
  group.complete++;
  std::vector<Entry*> released;
  release_if_complete(group, released);
  return released;
}

std::vector<Entry*> Groups::fail(Entry& entry) {
  std::vector<Entry*> released;
  for (Group* group : entry.groups) {
    group->members.erase(std::find(group->members.begin(), group->members.end(), &entry));
    group->failed++;
    if (entry.state == Entry::State::held) group->complete--;
    if (group->members.empty()) {
      forget(*group);  // the next use of the name starts afresh
    } else {
      release_if_complete(*group, released);
    }
  }
  entry.groups.clear();
  return released;
}

void Groups::release_if_complete(Group& group, std::vector<Entry*>& released) {
  if (group.complete + group.failed < group.size) return;
  for (Entry* member : group.members) {
    released.push_back(member);
    member->groups.clear();
  }
  forget(group);
}

void Groups::forget(Group& group) {
  auto found = filling_.find(NameView{group.process_set, group.name});
  if (found != filling_.end() && found->second == &group) filling_.erase(found);
  groups_.erase(group.place);
}

}  // namespace hvd
