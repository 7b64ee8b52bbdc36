// The collectives of a process set that spans hosts: shared memory inside a host, streams between hosts, with as few
// bytes over the network as possible.
//
// Vocabulary. Lanes and places: see placement.h. A large tensor is processed in *rounds*, so that the memory needed
// does not depend on its size; the shared memory part of one round overlaps the network part of the one before. Thread
// rule: the thread that drives.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/cross_allreduce.h"
#include "collectives/host_collectives.h"
#include "collectives/placement.h"

namespace hvd {

struct WorldSettings {
  size_t one_shot_limit = 32 << 10;  // of the part inside a host
  size_t round = 1 << 20;            // bytes of one rank's share of a round; whole cache lines
  size_t lane_bytes = 8 << 10;       // a tensor uses one lane per this many bytes
  // one ring over all ranks instead, if they can be ordered so that neighbours are on different hosts
  bool flat_allreduce = false;
  bool flat_allgather = false;  // a block is sent to every rank instead of once to each host
  CrossSettings cross{};
};

class WorldCollectives final : public Collectives {
 public:
  // `channel` is that of the members on this host, in the order of their positions.
  WorldCollectives(Transport& transport, Channel& channel, Placement placement, WorldSettings settings);

  using Collectives::allgather;

  int32_t size() const override { return static_cast<int32_t>(at_.ranks.size()); }
  int32_t position() const override { return at_.position; }
  void describe(const char* what) override;
  void set_one_shot_limit(size_t bytes) override { host_.set_one_shot_limit(bytes); }
  Status allreduce(const Segments& in, const Segments& out, const Reduction& reduction) override;
  Status allgather(const Segments& mine, std::span<const Segments> theirs) override;
  Status broadcast(int32_t root, const Segments& data) override;
  Status alltoall(std::span<const Segments> sent, std::span<const Segments> received, size_t largest) override;
  Status reducescatter(std::span<const Segments> parts, const Segments& out, const Reduction& reduction) override;
  Status adasum(const std::byte* in, std::byte* out, size_t count, DType dtype, double prescale,
                double factor) override;
  Status barrier() override;

 private:
  struct Range {
    size_t begin = 0, end = 0;
    size_t bytes() const { return end - begin; }
  };
  // One round of an allreduce in progress.
  struct Round {
    Range range;                // of the tensor
    std::byte* work = nullptr;  // this rank's shard of it
    bool in_place = false;      // `work` is inside `out`
    CrossAllreduce cross;
  };
  struct Allreduce {  // parameters shared by its steps
    const Segments& in;
    const Segments& out;
    const Reduction& reduction;
    size_t lanes;
  };

  bool alone() const { return at_.locals().size() == 1; }
  size_t lanes_for(size_t bytes) const;
  size_t most_handled() const;                                  // most parts of a reducescatter that one rank handles
  static Range share(Range whole, size_t index, size_t count);  // whole cache lines, nearly equal
  std::vector<Segments>& lists(std::vector<Segments>& kept, size_t count);

  // An allreduce: reduce-scatter in the host, each lane reduces its shard between the hosts, all-gather in the host.
  Status reduce_in_host(const Allreduce& call, Round& round, std::byte* spare);
  void start_round(const Allreduce& call, Round& round, std::byte* place);
  Status spread_in_host(const Allreduce& call, Round& round);
  Status run_rounds(const Allreduce& call);
  bool drives(const Allreduce& call) const { return flat_ || at_.seat.place < call.lanes; }
  Range shard_of(const Allreduce& call, const Round& round) const;

  // Sends and receives in progress: of a round, or of a whole call.
  struct Traffic {
    std::vector<Mesh::Ticket> arrived, sent;
  };
  void send(Traffic& traffic, int32_t rank, const Segments& data, Range range);
  void receive(Traffic& traffic, int32_t rank, const Segments& data, Range range);
  Status wait_all(std::vector<Mesh::Ticket>& tickets);  // clears the list
  // The member of `host` that handles this rank's data there: spread over all members of the host.
  int32_t counterpart(size_t host) const { return at_.rank_at(host, at_.seat.place % at_.hosts[host].size()); }
  // What the local rank at `place` handles: all ranks of other hosts whose counterpart here it is.
  bool handles(size_t place, const Placement::Seat& other) const {
    return other.host != at_.seat.host && other.place % at_.locals().size() == place;
  }

  Status broadcast_small(int32_t root, const Segments& data);
  Status broadcast_large(int32_t root, const Segments& data);
  struct Chain {  // a large broadcast
    const Segments& data;
    size_t lanes;
    bool drives;   // this rank is in one of the lanes
    int32_t next;  // rank of the world; -1: none
  };
  template <class Visit>
  void for_rounds(const Chain& chain, Visit&& visit) const;
  template <class Visit>
  void for_segments(Range range, Visit&& visit) const;
  Status feed_chain(const Chain& chain, Range round, int32_t root);
  Status pass_on(const Chain& chain, Range round, size_t& arrived);

  // One round of a reducescatter; see world_reduce.cc.
  struct Scatter {
    const std::span<const Segments> parts;
    const Segments& out;
    const Reduction& reduction;
    size_t room;  // bytes of each part in a round
  };
  Status start_scatter(const Scatter& call, size_t k);
  Status finish_scatter(const Scatter& call, size_t k);

  // Adasum between the hosts; see world_adasum.cc.
  using Combine = std::function<void(std::span<const std::byte* const> by_host, Range range)>;
  Status scatter_blocks(std::byte* vector, size_t bytes, const Combine& combine);
  Status gather_blocks(std::byte* vector, size_t bytes);
  Range shard_of(size_t bytes) const { return share({0, bytes}, at_.seat.place, at_.lanes); }

  Placement at_;
  WorldSettings settings_;
  HostCollectives host_;
  Links links_;
  Team lane_;                 // of this rank; empty: it is in no lane
  std::optional<Team> flat_;  // all ranks
  Round rounds_[2];
  Traffic traffic_[2];
  // Allocated once, for each of two rounds: this rank's results and the received data.
  struct FreePages {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, FreePages> scratch_;
  std::byte* work(size_t k) const { return scratch_.get() + k % 2 * 2 * settings_.round; }
  std::byte* incoming(size_t k) const { return work(k) + settings_.round; }
  // Reused between calls, so that a steady state allocates nothing.
  std::vector<Segments> parts_, theirs_;
  Segments mine_;
};

}  // namespace hvd
