#include "transport/channel.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/round_up.h"
namespace hvd {
namespace {

constexpr size_t kInlineBytes = kLine - sizeof(uint64_t);
// Unused memory between slots: when a rank reads a slot to its end, its prefetcher takes the following lines away from
// the rank that is about to write them. Without the gap a step of 4 KiB takes twice as long.
constexpr size_t kGap = 2 << 10;
constexpr size_t kGapsInRing = 16;  // at least, so that three of the largest slots always fit

}  // namespace

Channel::Channel(Waiter& waiter, Bells& bells, Mapping memory, ChannelShape shape, std::vector<int32_t> ranks,
                 int32_t position, uint64_t base)
    : waiter_(waiter),
      bells_(bells),
      memory_(std::move(memory)),
      shape_(shape),
      ranks_(std::move(ranks)),
      position_(position),
      rank_bytes_(bytes(shape, 1)),
      ring_offset_(round_up(sizeof(RankFlags) + shape.headers * kLine, 4096)),
      chunks_offset_(ring_offset_ + shape.ring),
      step_(base),
      next_chunk_(base),
      chunk_bytes_(shape.chunk) {
  freed_ = base;
  assert(shape_.chunks >= 4 && shape_.chunk % kLine == 0 && shape_.ring % kLine == 0);
}

bool Channel::is_crowded() const { return waiter_.is_crowded(); }

size_t Channel::bytes(const ChannelShape& shape, size_t ranks) {
  size_t head = round_up(sizeof(RankFlags) + shape.headers * kLine, 4096);
  return ranks * round_up(head + shape.ring + 2 * shape.chunks * shape.chunk, 4096);
}

void Channel::begin_step(size_t bytes) {
  assert(bytes <= largest_slot());
  step_++;
  inline_ = bytes <= kInlineBytes;
  if (inline_) return;
  size_t room = round_up(bytes, kLine);
  if (ring_next_ + room > shape_.ring) ring_next_ = 0;
  ring_position_ = ring_next_;
  ring_next_ += room + std::min(kGap, shape_.ring / kGapsInRing / kLine * kLine);
}

void Channel::post() {
  header_step(position_).store(step_, std::memory_order_release);
  bells_.owe_data();
}

Status Channel::wait_flag(const std::atomic<uint64_t>& flag, uint64_t value, int32_t position) {
  return waiter_.wait_until([&] { return flag.load(std::memory_order_acquire) >= value; }, kNever, what_,
                            waiter_.group().world_rank(ranks_[static_cast<size_t>(position)]));
}

Status Channel::await(int32_t position) { return wait_flag(header_step(position), step_, position); }

Status Channel::barrier() {
  begin_step(0);
  post();
  for (int32_t position = 0; position < size(); position++) {
    if (Status status = await(position); !status.ok()) return status;
  }
  return {};
}

void Channel::cut_chunks(size_t bytes) {
  assert(bytes > 0 && bytes <= shape_.chunk);
  chunk_bytes_ = round_up(bytes, kLine);
  chunk_places_ = shape_.chunk / chunk_bytes_;
}

void Channel::post_in(uint64_t chunk) {
  flags(position_).in.value.store(chunk + 1, std::memory_order_release);
  bells_.ring_blocked();
}

void Channel::post_out(uint64_t chunk) {
  flags(position_).out.value.store(chunk + 1, std::memory_order_release);
  bells_.ring_blocked();
}

Status Channel::await_in(int32_t position, uint64_t chunk) {
  return wait_flag(flags(position).in.value, chunk + 1, position);
}

Status Channel::await_out(int32_t position, uint64_t chunk) {
  return wait_flag(flags(position).out.value, chunk + 1, position);
}

Status Channel::wait_chunk_free(uint64_t chunk) {
  if (chunk < freed_ + shape_.chunks) return {};
  uint64_t last_user = chunk - shape_.chunks;
  uint64_t freed = UINT64_MAX;
  for (int32_t position = 0; position < size(); position++) {
    if (position == position_) continue;
    if (Status status = await_out(position, last_user); !status.ok()) return status;
    freed = std::min(freed, flags(position).out.value.load(std::memory_order_relaxed));
  }
  freed_ = freed == UINT64_MAX ? chunk : freed;
  return {};
}

void Channel::finish_chunks(uint64_t count) {
  next_chunk_ += count;
  // A rank with nothing to post still counts as having posted, so that the numbers stay equal on every rank.
  flags(position_).in.value.store(next_chunk_, std::memory_order_release);
  flags(position_).out.value.store(next_chunk_, std::memory_order_release);
  bells_.owe_data();
}

}  // namespace hvd
