// The channels of process sets, each in its own range of the memory that the ranks of a host share. All ranks open and
// close the same channels in the same order, so they compute the same ranges. Thread rule: the thread that drives.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "transport/bells.h"
#include "transport/channel.h"
#include "transport/waiter.h"

namespace hvd {

class ChannelTable {
 public:
  // Dependencies of channels; all outlive them. `begin`: the offset in `memory` where their ranges start.
  struct Parts {
    const UniqueFd& memory;
    size_t begin;
    ChannelShape shape;
    int32_t rank;  // of this host
    Waiter& waiter;
    Bells& bells;
  };
  explicit ChannelTable(const Parts& parts) : parts_(parts) {}

  // The channel of a process set with these ranks of the host. Null: this rank is not one of them.
  Result<Channel*> open(int32_t process_set, const std::vector<int32_t>& ranks);
  // The channel of two ranks of the host, or of this rank alone. Its place follows from the ranks, so other ranks need
  // not open it too. It is smaller than the others, because there may be one for every two ranks.
  Result<std::unique_ptr<Channel>> open_pair(const std::vector<int32_t>& ranks) const;
  void close(int32_t process_set);
  Channel* find(int32_t process_set) const;

 private:
  struct Range {
    size_t begin = 0, end = 0;
    std::unique_ptr<Channel> channel;  // null: this rank is not a member
  };
  size_t find_room(size_t bytes) const;

  Parts parts_;
  std::map<int32_t, Range> ranges_;  // by process set
  uint64_t opened_ = 0;              // channels ever opened
};

}  // namespace hvd
