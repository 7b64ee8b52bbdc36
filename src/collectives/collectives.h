// The collectives among the ranks of one process set: the raw layer, without names, negotiation or handles. Every rank
// of the set calls the same function with matching sizes. Implementations: HostCollectives (all ranks on one host),
// WorldCollectives (several hosts).
// Results have the same bits on every rank and in every run: the order in which an element is reduced depends only on
// the process set. After a failure the object is unusable: the world has failed. Thread rule: the thread that drives.
#pragma once

#include <span>

#include "base/status.h"
#include "base/wire.h"
#include "collectives/segments.h"

namespace hvd {

struct Reduction {
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;  // not average, which is sum with a factor; not adasum: see adasum()
  double prescale = 1.0;
  double factor = 1.0;  // on the result
};

class Collectives {
 public:
  virtual ~Collectives() = default;

  virtual int32_t size() const = 0;
  virtual int32_t position() const = 0;         // of this rank in the set; ranks below are positions
  virtual void describe(const char* what) = 0;  // names the current operation in reports; must stay valid
  // larger exchanges inside a host are chunked; the same on every rank
  virtual void set_one_shot_limit(size_t bytes) = 0;

  // `in` and `out` are split at the same offsets and may be the same memory.
  virtual Status allreduce(const Segments& in, const Segments& out, const Reduction& reduction) = 0;
  // theirs[p] receives the data of rank p; theirs[position()] is filled too.
  virtual Status allgather(const Segments& mine, std::span<const Segments> theirs) = 0;
  virtual Status broadcast(int32_t root, const Segments& data) = 0;  // read at the root, written elsewhere
  // received[p] gets the sent[position()] of rank p. `largest` is the maximum over all pairs, in bytes.
  virtual Status alltoall(std::span<const Segments> sent, std::span<const Segments> received, size_t largest) = 0;
  // parts[p] becomes the part of rank p; `out` is split like parts[position()].
  virtual Status reducescatter(std::span<const Segments> parts, const Segments& out, const Reduction& reduction) = 0;
  // `out` is written at the root only, and need not exist elsewhere.
  virtual Status reduce(int32_t root, const Segments& in, const Segments& out, const Reduction& reduction);
  // Adaptive summation of one tensor of f16, bf16, f32 or f64; see adasum.cc.
  virtual Status adasum(const std::byte* in, std::byte* out, size_t count, DType dtype, double prescale,
                        double factor) = 0;
  virtual Status barrier() = 0;

  // theirs[p] receives, at the root, what rank p contributes. `largest` of all ranks, in bytes.
  Status gather(int32_t root, const Segments& mine, std::span<const Segments> theirs, size_t largest);
  // parts[p] is, at the root, what rank p receives in `mine`. `largest` of all parts, in bytes.
  Status scatter(int32_t root, std::span<const Segments> parts, const Segments& mine, size_t largest);
  // allgather of blocks of equal size into one buffer.
  Status allgather(ByteView mine, std::byte* all);
};

}  // namespace hvd
