#include "transport/channel_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/round_up.h"
#include "transport/shared_memory.h"

namespace hvd {
namespace {

constexpr size_t kAlignment = 2 << 20;

// Pairs begin far behind all other channels. The gap takes no memory, and a pair takes none before its first use.
constexpr size_t kPairsBegin = size_t{1} << 40;
constexpr uint64_t kPairBase = uint64_t{1} << 40;

ChannelShape shape_of_pair(const ChannelShape& shape) {
  return {.ring = std::min<size_t>(shape.ring, 256 << 10),
          .chunk = std::min<size_t>(shape.chunk, 128 << 10),
          .chunks = std::min<size_t>(shape.chunks, 8),
          .headers = std::min<size_t>(shape.headers, 256)};
}

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

Result<std::unique_ptr<Channel>> ChannelTable::open_pair(const std::vector<int32_t>& ranks) const {
  ChannelShape shape = shape_of_pair(parts_.shape);
  auto low = static_cast<size_t>(ranks.front()), high = static_cast<size_t>(ranks.back());
  size_t bytes = round_up(Channel::bytes(shape, 2), kAlignment);
  auto memory = map_shared_memory(parts_.memory, kPairsBegin + (high * (high + 1) / 2 + low) * bytes, bytes);
  if (!memory.ok()) return memory.status();
  int32_t position = parts_.rank == ranks.front() ? 0 : 1;
  return std::make_unique<Channel>(parts_.waiter, parts_.bells, std::move(*memory), shape, ranks, position, kPairBase);
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
