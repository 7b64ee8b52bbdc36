// The collectives that only move bytes: allgather, broadcast, alltoall.
#include <algorithm>
#include <vector>

#include "base/round_up.h"
#include "collectives/host_collectives.h"

namespace hvd {

Status HostCollectives::allgather(const Segments& mine, std::span<const Segments> theirs) {
  size_t largest = 0;
  for (const Segments& block : theirs) largest = std::max(largest, block.bytes());
  const Segments& own = theirs[static_cast<size_t>(self())];
  copy_over(mine, own);
  if (fits_one_shot(largest)) {
    channel_.begin_step(largest);
    stage(mine, 0, mine.bytes(), channel_.slot(), nullptr);
    channel_.post();
    if (Status status = await_all(); !status.ok()) return status;
    for (int32_t p = 0; p < size(); p++) {
      const Segments& block = theirs[static_cast<size_t>(p)];
      if (p != self()) block.write(0, block.bytes(), channel_.slot_of(p));
    }
    return {};
  }
  size_t room = chunk_for(largest);
  channel_.cut_chunks(room);
  uint64_t first = channel_.first_chunk(), count = (largest + room - 1) / room;
  auto offer = [&](uint64_t k) -> Status {
    if (k * room >= mine.bytes()) return {};
    if (Status status = channel_.wait_chunk_free(first + k); !status.ok()) return status;
    stage(mine, k * room, std::min(mine.bytes(), (k + 1) * room), channel_.in(self(), first + k), nullptr);
    channel_.post_in(first + k);
    return {};
  };
  auto collect = [&](uint64_t k) -> Status {
    for (int32_t d = 1; d < size(); d++) {
      int32_t p = (self() + d) % size();
      const Segments& block = theirs[static_cast<size_t>(p)];
      if (k * room >= block.bytes()) continue;
      if (Status status = channel_.await_in(p, first + k); !status.ok()) return status;
      block.write(k * room, std::min(block.bytes(), (k + 1) * room), channel_.in(p, first + k));
    }
    channel_.post_out(first + k);
    return {};
  };
  for (uint64_t turn = 0; turn < count + 1; turn++) {
    Status status;
    if (turn < count) status = offer(turn);
    if (status.ok() && turn >= 1) status = collect(turn - 1);
    if (!status.ok()) return status;
  }
  channel_.finish_chunks(count);
  return {};
}

Status HostCollectives::broadcast(int32_t root, const Segments& data) {
  size_t total = data.bytes();
  if (fits_one_shot(total)) {
    channel_.begin_step(total);
    if (self() == root) stage(data, 0, total, channel_.slot(), nullptr);
    channel_.post();
    if (Status status = await_all(); !status.ok()) return status;
    if (self() != root) data.write(0, total, channel_.slot_of(root));
    return {};
  }
  size_t room = chunk_for(total);
  channel_.cut_chunks(room);
  uint64_t first = channel_.first_chunk(), count = (total + room - 1) / room;
  for (uint64_t k = 0; k < count; k++) {
    size_t begin = k * room, end = std::min(total, begin + room);
    if (self() == root) {
      if (Status status = channel_.wait_chunk_free(first + k); !status.ok()) return status;
      stage(data, begin, end, channel_.in(self(), first + k), nullptr);
      channel_.post_in(first + k);
    } else {
      if (Status status = channel_.await_in(root, first + k); !status.ok()) return status;
      data.write(begin, end, channel_.in(root, first + k));
      channel_.post_out(first + k);
    }
  }
  channel_.finish_chunks(count);
  return {};
}

Status HostCollectives::alltoall(std::span<const Segments> sent, std::span<const Segments> received, size_t largest) {
  size_t own = static_cast<size_t>(self()), ranks = sent.size();
  copy_over(sent[own], received[own]);
  size_t stride = round_up(largest, kLine);
  if (fits_one_shot(stride * ranks)) {
    channel_.begin_step(stride * ranks);
    for (size_t p = 0; p < ranks; p++) {
      if (p != own) stage(sent[p], 0, sent[p].bytes(), channel_.slot() + p * stride, nullptr);
    }
    channel_.post();
    if (Status status = await_all(); !status.ok()) return status;
    for (size_t p = 0; p < ranks; p++) {
      if (p == own) continue;
      received[p].write(0, received[p].bytes(), channel_.slot_of(static_cast<int32_t>(p)) + own * stride);
    }
    return {};
  }
  size_t room = share_room();
  channel_.cut_chunks(room * ranks);
  uint64_t first = channel_.first_chunk(), count = (largest + room - 1) / room;
  auto clip = [&](const Segments& block, uint64_t k) -> Range {
    return {std::min(block.bytes(), k * room), std::min(block.bytes(), (k + 1) * room)};
  };
  auto offer = [&](uint64_t k) -> Status {
    if (Status status = channel_.wait_chunk_free(first + k); !status.ok()) return status;
    for (size_t p = 0; p < ranks; p++) {
      Range range = clip(sent[p], k);
      if (p != own) stage(sent[p], range.begin, range.end, channel_.in(self(), first + k) + p * room, nullptr);
    }
    channel_.post_in(first + k);
    return {};
  };
  auto collect = [&](uint64_t k) -> Status {
    for (size_t d = 1; d < ranks; d++) {
      size_t p = (own + d) % ranks;
      int32_t position = static_cast<int32_t>(p);
      if (Status status = channel_.await_in(position, first + k); !status.ok()) return status;
      Range range = clip(received[p], k);
      received[p].write(range.begin, range.end, channel_.in(position, first + k) + own * room);
    }
    channel_.post_out(first + k);
    return {};
  };
  for (uint64_t turn = 0; turn < count + 1; turn++) {
    Status status;
    if (turn < count) status = offer(turn);
    if (status.ok() && turn >= 1) status = collect(turn - 1);
    if (!status.ok()) return status;
  }
  channel_.finish_chunks(count);
  return {};
}

}  // namespace hvd
