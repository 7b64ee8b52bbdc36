// Adasum between hosts. Every host first applies it to its own ranks (adasum.cc); then the hosts' vectors are the
// inputs of the same method: the matrix of their dot products gives each vector's weight. If every host has the same
// power of two of consecutive ranks, this equals the tree over all ranks. Lane i has shard i of the vectors; each rank
// of the lane has one block of the shard, and receives it from all hosts: once for the dot products and again for the
// weighted sum, so that no vector has to be stored.
#include <algorithm>

#include "base/round_up.h"
#include "collectives/adasum.h"
#include "collectives/world_collectives.h"

namespace hvd {

Status WorldCollectives::adasum(const std::byte* in, std::byte* out, size_t count, DType dtype, double prescale,
                                double factor) {
  size_t hosts = at_.hosts.size(), width = size_of(dtype), bytes = count * width;
  if (count == 0) return {};
  if (!alone()) {
    if (Status status = host_.adasum(in, out, count, dtype, prescale, 1.0); !status.ok()) return status;
  } else if (prescale != 1.0) {
    scale(dtype, out, in, count, prescale);
  } else if (out != in) {
    hvd::copy(out, in, bytes);
  }
  std::vector<double> dots(hosts * hosts, 0.0);
  Status status = scatter_blocks(out, bytes, [&](std::span<const std::byte* const> by_host, Range range) {
    for (size_t a = 0; a < hosts; a++) {
      for (size_t b = a; b < hosts; b++)
        dots[a * hosts + b] += dot(dtype, by_host[a], by_host[b], range.bytes() / width);
    }
  });
  if (!status.ok()) return status;
  for (size_t a = 0; a < hosts; a++) {
    for (size_t b = 0; b < a; b++) dots[a * hosts + b] = dots[b * hosts + a];
  }
  Segments all(reinterpret_cast<std::byte*>(dots.data()), dots.size() * sizeof(double));
  if (status = allreduce(all, all, {.dtype = DType::f64}); !status.ok()) return status;
  std::vector<double> weights = adasum_weights(dots, hosts);
  for (double& weight : weights) weight *= factor;
  status = scatter_blocks(out, bytes, [&](std::span<const std::byte* const> by_host, Range range) {
    weighted_sum(dtype, out + range.begin, by_host, weights, range.bytes() / width);
  });
  if (!status.ok()) return status;
  return gather_blocks(out, bytes);
}

// Calls combine() for the pieces of this rank's block, with the same piece of every host's vector.
Status WorldCollectives::scatter_blocks(std::byte* vector, size_t bytes, const Combine& combine) {
  if (at_.seat.place >= at_.lanes) return {};
  size_t hosts = at_.hosts.size(), room = settings_.round / hosts / kLine * kLine;
  Range shard = shard_of(bytes);
  auto piece = [&](size_t host, size_t k) -> Range {
    Range block = share(shard, host, hosts);
    return {std::min(block.end, block.begin + k * room), std::min(block.end, block.begin + (k + 1) * room)};
  };
  auto start = [&](size_t k) {
    Traffic& traffic = traffic_[k % 2];
    size_t own = piece(at_.seat.host, k).bytes();
    for (size_t d = 1; d < hosts; d++) {
      size_t to = (at_.seat.host + d) % hosts, from = (at_.seat.host + hosts - d) % hosts;
      Range theirs = piece(to, k);
      traffic.arrived.push_back(links_.receive(lane_.ranks[from], {incoming(k) + from * room, own}));
      traffic.sent.push_back(links_.send(lane_.ranks[to], {vector + theirs.begin, theirs.bytes()}));
    }
    links_.progress();
  };
  std::vector<const std::byte*> by_host(hosts);
  size_t largest = share(shard, 0, hosts).bytes(), rounds = (largest + room - 1) / room;
  for (size_t k = 0; k < rounds + 1; k++) {
    if (k < rounds) start(k);
    if (k == 0) continue;
    Traffic& traffic = traffic_[(k - 1) % 2];
    if (Status status = wait_all(traffic.arrived); !status.ok()) return status;
    Range own = piece(at_.seat.host, k - 1);
    for (size_t host = 0; host < hosts; host++) by_host[host] = incoming(k - 1) + host * room;
    by_host[at_.seat.host] = vector + own.begin;
    if (own.bytes() > 0) combine(by_host, own);
    if (Status status = wait_all(traffic.sent); !status.ok()) return status;
  }
  return {};
}

// Sends the finished blocks to all ranks of all hosts.
Status WorldCollectives::gather_blocks(std::byte* vector, size_t bytes) {
  size_t hosts = at_.hosts.size();
  if (at_.seat.place < at_.lanes) {
    Traffic& traffic = traffic_[0];
    Range shard = shard_of(bytes), own = share(shard, at_.seat.host, hosts);
    for (size_t d = 1; d < hosts; d++) {
      size_t to = (at_.seat.host + d) % hosts, from = (at_.seat.host + hosts - d) % hosts;
      Range theirs = share(shard, from, hosts);
      traffic.arrived.push_back(links_.receive(lane_.ranks[from], {vector + theirs.begin, theirs.bytes()}));
      traffic.sent.push_back(links_.send(lane_.ranks[to], {vector + own.begin, own.bytes()}));
    }
    if (Status status = wait_all(traffic.arrived); !status.ok()) return status;
    if (Status status = wait_all(traffic.sent); !status.ok()) return status;
  }
  if (alone()) return {};
  std::vector<Segments>& shards = lists(theirs_, at_.locals().size());
  for (size_t lane = 0; lane < at_.lanes; lane++) {
    Range range = share({0, bytes}, lane, at_.lanes);
    shards[lane].add(vector + range.begin, range.bytes());
  }
  return host_.allgather(shards[at_.seat.place], shards);
}

}  // namespace hvd
