// The collectives among the ranks of one process set on one host, over its Channel.
// Small exchanges take one step (one hop); large ones go through staging memory in chunks, so that each tensor passes
// through main memory once and the work of the ranks overlaps. An element is always reduced in the order of the ranks.
// Thread rule: the thread that drives.
#pragma once

#include <span>
#include <vector>

#include "collectives/collectives.h"
#include "collectives/store_choice.h"
#include "transport/channel.h"

namespace hvd {

class HostCollectives final : public Collectives {
 public:
  explicit HostCollectives(Channel& channel, size_t one_shot_limit = 32 << 10);

  Channel& channel() { return channel_; }
  using Collectives::allgather;

  int32_t size() const override { return channel_.size(); }
  int32_t position() const override { return channel_.position(); }
  void describe(const char* what) override { channel_.describe(what); }
  void set_one_shot_limit(size_t bytes) override;
  Status allreduce(const Segments& in, const Segments& out, const Reduction& reduction) override;
  Status reduce(int32_t root, const Segments& in, const Segments& out, const Reduction& reduction) override;
  Status allgather(const Segments& mine, std::span<const Segments> theirs) override;
  Status broadcast(int32_t root, const Segments& data) override;
  Status alltoall(std::span<const Segments> sent, std::span<const Segments> received, size_t largest) override;
  Status reducescatter(std::span<const Segments> parts, const Segments& out, const Reduction& reduction) override;
  Status adasum(const std::byte* in, std::byte* out, size_t count, DType dtype, double prescale,
                double factor) override;
  Status barrier() override { return channel_.barrier(); }

 private:
  struct Range {
    size_t begin, end;
  };
  int32_t self() const { return channel_.position(); }
  bool fits_one_shot(size_t bytes) const { return bytes <= one_shot_bytes_; }
  Status await_all();
  // The part of a chunk of `bytes` that rank p reduces: whole cache lines, nearly equal.
  Range part_of(size_t bytes, int32_t p) const;
  size_t chunk_for(size_t bytes) const;
  size_t share_room() const;  // room per rank in a chunk that is divided by destination

  // Copies a range of `from` into staging memory, scaled, with the fastest kind of store at present.
  void stage(const Segments& from, size_t begin, size_t end, std::byte* staging, const Reduction* scaling);
  // Reduces [begin, end) of `in` with the staged data of the others (sources[p] + offset) into `out`, and into `copy`
  // if that is not null.
  void combine(const Segments& in, const Segments& out, size_t begin, size_t end, const Reduction& reduction,
               std::byte* copy);

  // `root` gets the result; kEverybody: all ranks do.
  static constexpr int32_t kEverybody = -1;
  bool receives(int32_t root) const { return root == kEverybody || root == self(); }
  Status reduce_to(int32_t root, const Segments& in, const Segments& out, const Reduction& reduction);
  Status allreduce_one_shot(int32_t root, const Segments& in, const Segments& out, const Reduction& reduction);
  Status allreduce_chunked(int32_t root, const Segments& in, const Segments& out, const Reduction& reduction);
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
