// Allreduce of one shard among a few ranks of different hosts (a *team*), in place, over their streams. It overlaps
// with other work: start() queues, advance() does what is possible without waiting, finish() waits for the rest.
//
// Three algorithms, chosen by the number of ranks and the size, the same on all ranks:
//  - exchange, for two ranks: each sends its shard to the other and reduces both. As many bytes as a ring, one hop.
//  - doubling, for small shards: in step s ranks at distance 2^s exchange what they have. Of n ranks the n - 2^k extra
//    ones hand their shard to a neighbour first and are handed the result at last.
//  - ring, for large ones: the shard is cut into a *block* per rank and a block into *segments*. Partial sums of the
//    blocks travel round and are completed (reduce-scatter), then the results travel round (all-gather). A segment is
//    forwarded while the next one is on the wire.
// All ranks combine the operands of an element in the same order, and apply the final factor once. Thread rule: the
// thread that drives.
#pragma once

#include <vector>

#include "collectives/collectives.h"
#include "collectives/links.h"

namespace hvd {

struct CrossSettings {
  size_t doubling_limit = 64 << 10;  // bytes of a shard up to which three or more hosts use doubling
  size_t segment = 256 << 10;
};

// The ranks of the world that take part, and which of them this one is.
struct Team {
  std::vector<int32_t> ranks;
  size_t self = 0;
  bool only_ring = false;  // only neighbours are on different hosts
  size_t size() const { return ranks.size(); }
};

class CrossAllreduce {
 public:
  CrossAllreduce(Links& links, CrossSettings settings) : links_(links), settings_(settings) {}

  // `incoming` has room for `bytes`; both buffers must stay valid until finish() has returned. reduction.prescale is
  // not applied.
  void start(const Team& team, std::byte* data, size_t bytes, std::byte* incoming, const Reduction& reduction);
  void advance();
  // All sends are queued, so the streams are free for another allreduce.
  bool is_queued() const { return !doubling_ && next_ >= forwards_; }
  Status finish();

 private:
  // Data that arrives, in the order of the stream, and what to do with it.
  struct Item {
    size_t begin, end;                    // of the shard
    const std::byte* incoming = nullptr;  // an operand; null: the bytes are received in place
    bool forward = false;
    bool last = false;           // the last reduction of this segment
    Mesh::Ticket arrived, sent;  // `sent` must be complete before the segment may be overwritten
  };
  void start_exchange();
  void start_ring();
  void process(const Item& item);
  Status run_doubling();
  Status swap(int32_t peer, bool is_lower, bool is_last);
  size_t segment_of(size_t bytes) const;
  void reduce_into(std::byte* data, const std::byte* first, const std::byte* second, size_t bytes, bool is_last);
  std::span<std::byte> shard(size_t begin, size_t end) const { return {data_ + begin, end - begin}; }

  Links& links_;
  CrossSettings settings_;
  const Team* team_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  std::byte* incoming_ = nullptr;
  Reduction reduction_;
  bool doubling_ = false;
  std::vector<Item> items_;  // reused between calls, so that a steady state allocates nothing
  size_t next_ = 0;          // next item
  size_t forwards_ = 0;      // items from this index on are not forwarded
  Mesh::Ticket last_sent_;
};

}  // namespace hvd
