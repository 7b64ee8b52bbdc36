// The collectives among the ranks of one process set on one host, over its Channel: the raw layer, without names,
// negotiation or handles. Every rank calls the same function with matching sizes.
// Small exchanges take one step (one hop); large ones flow through staging memory in chunks, so that main memory sees
// each tensor once and the work of the ranks overlaps. Results are the same bits on every rank and run: an element is
// always reduced in the order of the ranks.
// After a failure the channel is unusable: the world has failed. Thread rule: the thread that drives.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"
#include "base/wire.h"
#include "collectives/segments.h"
#include "collectives/store_choice.h"
#include "transport/channel.h"

namespace hvd {

struct Reduction {
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;  // not average: that is sum with a factor; not adasum: see adasum()
  double prescale = 1.0;
  double factor = 1.0;  // on the result
};

class HostCollectives {
 public:
  explicit HostCollectives(Channel& channel, size_t one_shot_limit = 32 << 10);

  Channel& channel() { return channel_; }
  // Larger exchanges are chunked. The same on every rank at every call.
  void set_one_shot_limit(size_t bytes);

  // `in` and `out` are cut at the same places and may be the same memory.
  Status allreduce(const Segments& in, const Segments& out, const Reduction& reduction);
  // theirs[p] receives what rank p contributes; theirs[own position] is filled too.
  Status allgather(const Segments& mine, std::span<const Segments> theirs);
  // The same for blocks of equal size into one buffer.
  Status allgather(ByteView mine, std::byte* all);
  Status broadcast(int32_t root, const Segments& data);  // root's position; read there, written elsewhere
  // received[p] gets what rank p holds in its sent[own position]. `largest` is the largest of all pairs, in bytes.
  Status alltoall(std::span<const Segments> sent, std::span<const Segments> received, size_t largest);
  // parts[p] is what rank p shall own; `out` is cut like parts[own position].
  Status reducescatter(std::span<const Segments> parts, const Segments& out, const Reduction& reduction);
  // Adaptive summation of one tensor of f16, bf16, f32 or f64; see adasum.cc.
  Status adasum(const std::byte* in, std::byte* out, size_t count, DType dtype, double prescale, double factor);
  Status barrier() { return channel_.barrier(); }

 private:
  struct Range {
    size_t begin, end;
  };
  int32_t size() const { return channel_.size(); }
  int32_t self() const { return channel_.position(); }
  bool fits_one_shot(size_t bytes) const { return bytes <= one_shot_bytes_; }
  Status await_all();
  // The part of a chunk of `bytes` that rank p reduces: whole cache lines, nearly equal.
  Range part_of(size_t bytes, int32_t p) const;
  size_t chunk_for(size_t bytes) const;
  size_t lane() const;  // room for each rank in a chunk that is shared out by destination

  // Copies a range of `from` into staging memory, scaled, with the store that is best now.
  void stage(const Segments& from, size_t begin, size_t end, std::byte* staging, const Reduction* scaling);
  // Reduces [begin, end) of `in` with the staged data of the others (sources[p] + offset) into `out`, and into `copy`
  // if that is not null.
  void combine(const Segments& in, const Segments& out, size_t begin, size_t end, const Reduction& reduction,
               std::byte* copy);

  Status allreduce_one_shot(const Segments& in, const Segments& out, const Reduction& reduction);
  Status allreduce_chunked(const Segments& in, const Segments& out, const Reduction& reduction);
  Status reducescatter_one_shot(std::span<const Segments> parts, const Segments& out, const Reduction& reduction,
                                size_t largest);
  Status reducescatter_chunked(std::span<const Segments> parts, const Segments& out, const Reduction& reduction,
                               size_t largest);
  Result<std::vector<double>> dot_products(const std::byte* in, size_t count, DType dtype);

  Channel& channel_;
  size_t one_shot_bytes_ = 0;
  StoreChoice store_;
  std::vector<const std::byte*> sources_;  // by position; scratch of combine()
};

}  // namespace hvd
