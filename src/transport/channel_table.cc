#include "transport/channel_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/round_up.h"
#include "transport/shared_memory.h"

namespace hvd {
namespace {

constexpr size_t kAlignment = 2 << 20;

}  // namespace

// The lowest offset with enough room.
size_t ChannelTable::find_room(size_t bytes) const {
  std::vector<std::pair<size_t, size_t>> used;
  for (const auto& [id, range] : ranges_) used.emplace_back(range.begin, range.end);
  std::sort(used.begin(), used.end());
  size_t offset = round_up(parts_.begin, kAlignment);
  for (const auto& [begin, end] : used) {
    if (offset + bytes <= begin) break;
    offset = std::max(offset, end);
  }
  return offset;
}

Result<Channel*> ChannelTable::open(int32_t process_set, const std::vector<int32_t>& ranks) {
  assert(!ranges_.contains(process_set));
  uint64_t base = ++opened_ << 40;
  size_t bytes = round_up(Channel::bytes(parts_.shape, ranks.size()), kAlignment);
  size_t offset = find_room(bytes);
  Range& range = ranges_[process_set];
  range.begin = offset;
  range.end = offset + bytes;
  auto self = std::find(ranks.begin(), ranks.end(), parts_.rank);
  if (self == ranks.end()) return nullptr;
  auto memory = map_shared_memory(parts_.memory, offset, bytes);
  if (!memory.ok()) return memory.status();
  range.channel = std::make_unique<Channel>(parts_.waiter, parts_.bells, std::move(*memory), parts_.shape, ranks,
                                            static_cast<int32_t>(self - ranks.begin()), base);
  return range.channel.get();
}

void ChannelTable::close(int32_t process_set) {
  auto found = ranges_.find(process_set);
  if (found == ranges_.end()) return;
  const Range& range = found->second;
  if (parts_.rank == 0) discard_shared_memory(parts_.memory, range.begin, range.end - range.begin);
  ranges_.erase(found);
}

Channel* ChannelTable::find(int32_t process_set) const {
  auto found = ranges_.find(process_set);
  return found == ranges_.end() ? nullptr : found->second.channel.get();
}

}  // namespace hvd
