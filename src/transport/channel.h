// The staging memory shared by the ranks of one process set, and its flags. Collectives are built on it.
//
// Vocabulary. A *step* is a one-hop exchange: every rank posts up to shape.one_shot bytes in its *slot* and reads the
// slots of the others. A slot is a header line (step number, up to 56 bytes inline) plus, for larger data, space in the
// rank's *ring*. A *chunk* is a piece of a large exchange: `in` is a rank's contribution, `out` is the part it
// computed; a rank has shape.chunks of each in flight.
//
// Ordering. Each location has one writer. A step number or counter is stored with release after the bytes it announces,
// and loaded with acquire before they are read.
//  - Slot reuse: a rank posts step s only after it has read every slot of step s-1, and so has seen all posts of s-1,
//    which their ranks made after reading everything of s-2. A slot that is written again was last used two or more
//    steps ago, because a ring holds at least four of the largest slots: no rank reads it any more.
//  - Chunk reuse: see wait_chunk_free().
//
// Thread rule: one caller at a time, the thread that drives.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "transport/bells.h"
#include "transport/shared_memory.h"
#include "transport/waiter.h"

namespace hvd {

struct ChannelShape {
  size_t ring = 4 << 20;
  size_t chunk = 128 << 10;
  size_t chunks = 16;
  size_t headers = 4096;  // header lines that a rank uses in turn
};

class Channel {
 public:
  // `base` makes step numbers and counters larger than any that were stored in this memory before.
  Channel(Waiter& waiter, Bells& bells, Mapping memory, ChannelShape shape, std::vector<int32_t> ranks,
          int32_t position, uint64_t base);

  static size_t bytes(const ChannelShape& shape, size_t ranks);

  int32_t position() const { return position_; }
  int32_t size() const { return static_cast<int32_t>(ranks_.size()); }
  const ChannelShape& shape() const { return shape_; }
  size_t largest_slot() const { return shape_.ring / 4; }
  bool is_crowded() const;                           // the same on every rank; see WaitSettings
  void describe(const char* what) { what_ = what; }  // names the current operation in reports; must stay valid

  // ---- steps ----
  void begin_step(size_t bytes);  // the same on every rank, at most largest_slot()
  std::byte* slot() { return slot_address(position_); }
  // The slot is complete. Peers that already sleep are woken when this rank itself waits or leaves (Waiter), so it must
  // do one of these next.
  void post();
  Status await(int32_t position);
  const std::byte* slot_of(int32_t position) const { return slot_address(position); }
  Status barrier();  // an empty step

  // ---- chunks ----
  // Numbers continue across operations: an operation of n chunks uses first_chunk() .. first_chunk() + n - 1 and ends
  // with finish_chunks(n), on every rank.
  // Sets the chunk size of the next operation, at most shape().chunk; the same on every rank. Smaller chunks use a
  // different part of their place each time, so that a writer goes through all of the staging memory: lines that are
  // still in the reader's cache are several times slower to write.
  void cut_chunks(size_t bytes);
  uint64_t first_chunk() const { return next_chunk_; }
  std::byte* in(int32_t position, uint64_t chunk) const { return chunk_address(position, chunk, 0); }
  std::byte* out(int32_t position, uint64_t chunk) const { return chunk_address(position, chunk, shape_.chunks); }
  void post_in(uint64_t chunk);
  void post_out(uint64_t chunk);  // also: this rank no longer needs any `in` of this chunk
  Status await_in(int32_t position, uint64_t chunk);
  Status await_out(int32_t position, uint64_t chunk);
  // Before `in` of a chunk is written: every rank has posted `out` of the chunk that used this place before, so no rank
  // still reads that `in`. The places for `out` need no check of their own if a rank reads the others' `out` of chunk c
  // before it posts `in` of c + chunks; the pipelines here do that (they are at most two chunks ahead).
  Status wait_chunk_free(uint64_t chunk);
  void finish_chunks(uint64_t count);

 private:
  struct RankFlags {
    Flag in, out;
  };
  Status wait_flag(const std::atomic<uint64_t>& flag, uint64_t value, int32_t position);
  std::byte* rank_memory(int32_t position) const {
    return memory_.data() + static_cast<size_t>(position) * rank_bytes_;
  }
  RankFlags& flags(int32_t position) const { return *reinterpret_cast<RankFlags*>(rank_memory(position)); }
  std::byte* header(int32_t position) const {
    return rank_memory(position) + sizeof(RankFlags) + (step_ % shape_.headers) * kLine;
  }
  std::atomic<uint64_t>& header_step(int32_t position) const {
    return *reinterpret_cast<std::atomic<uint64_t>*>(header(position));
  }
  std::byte* slot_address(int32_t position) const {
    return inline_ ? header(position) + sizeof(uint64_t) : rank_memory(position) + ring_offset_ + ring_position_;
  }
  std::byte* chunk_address(int32_t position, uint64_t chunk, size_t first) const {
    size_t within = (chunk / shape_.chunks) % chunk_places_ * chunk_bytes_;
    return rank_memory(position) + chunks_offset_ + (first + chunk % shape_.chunks) * shape_.chunk + within;
  }

  Waiter& waiter_;
  Bells& bells_;
  Mapping memory_;
  ChannelShape shape_;
  std::vector<int32_t> ranks_;  // of the transport, by position
  int32_t position_;
  size_t rank_bytes_, ring_offset_, chunks_offset_;
  uint64_t step_;
  uint64_t next_chunk_;
  size_t chunk_bytes_, chunk_places_ = 1;
  size_t ring_position_ = 0, ring_next_ = 0;
  bool inline_ = true;
  uint64_t freed_ = 0;  // all ranks have posted `out` of the chunks before this one
  const char* what_ = "";
};

}  // namespace hvd
