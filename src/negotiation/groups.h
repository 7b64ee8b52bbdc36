// Groups of tensors that become ready together. A group collects members under its name until it has its full number; a
// further member of that name starts the next group. Thread rule: one caller at a time.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "negotiation/name_key.h"
#include "negotiation/request_table.h"

namespace hvd {

struct Group {
  std::string name;
  int32_t process_set = kWorldSet;
  uint32_t size = 0;            // from the first request
  std::vector<Entry*> members;  // not failed, in the order they were first seen
  uint32_t failed = 0;          // members that failed count as complete
  uint32_t complete = 0;        // members that wait for the others
  std::list<Group>::iterator place;

  uint32_t seen() const { return static_cast<uint32_t>(members.size()) + failed; }
};

class Groups {
 public:
  // Makes the entry a member of the group that a rank's request names, if it is not yet a member.
  void add(Entry& entry, std::string_view name, uint32_t size);
  // All ranks agree about the entry, which is in one group. If it was the last missing member, returns the group's
  // members.
  std::vector<Entry*> complete(Entry& entry);
  // The entry failed: it leaves its groups. Returns the members that waited only for it, group by group.
  std::vector<Entry*> fail(Entry& entry);

  size_t size() const { return groups_.size(); }

 private:
  Group& filling(int32_t process_set, std::string_view name, uint32_t size);
  void release_if_complete(Group& group, std::vector<Entry*>& released);
  void forget(Group& group);

  std::list<Group> groups_;
  NameMap<Group*> filling_;  // groups that still accept members
};

}  // namespace hvd
