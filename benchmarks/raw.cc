// Our collectives without names, negotiation or handles: what the engine would reach if deciding cost nothing.
#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "collectives/host_collectives.h"
#include "model/config.h"
#include "model/plan.h"
#include "sampler.h"
#include "transport/local.h"
#include "transport/transport.h"

namespace {

using bench::Case;
using bench::Collective;

template <class T>
T take(hvd::Result<T> result) {
  errno = 0;
  if (!result.ok()) bench::fail(std::string(result.status().message()));
  return std::move(*result);
}

void expect(const hvd::Status& status) {
  if (status.ok()) [[likely]]
    return;
  errno = 0;
  bench::fail(std::string(status.message()));
}

// As the engine sets it up for ranks that fit on the cores, or do not.
hvd::TransportSettings settings_for(const bench::Team& team) {
  hvd::Config config;
  hvd::TransportSettings settings;
  settings.channel = {.ring = static_cast<size_t>(config.shm_ring_bytes),
                      .chunk = static_cast<size_t>(config.shm_chunk_bytes),
                      .chunks = static_cast<size_t>(config.shm_chunks)};
  settings.spin = team.crowded() ? hvd::Duration{} : std::chrono::microseconds(static_cast<int64_t>(config.spin_us));
  settings.yield = std::chrono::microseconds(static_cast<int64_t>(config.yield_us));
  return settings;
}

std::vector<hvd::Segments> split(float* data, size_t share, int parts) {
  std::vector<hvd::Segments> segments;
  for (int p = 0; p < parts; p++) {
    segments.emplace_back(reinterpret_cast<std::byte*>(data + static_cast<size_t>(p) * share), share * sizeof(float));
  }
  return segments;
}

void measure_case(bench::Sampler& sampler, const Case& c, hvd::HostCollectives& collectives,
                  hvd::Transport& transport) {
  int size = collectives.size();
  float *in = sampler.in(), *out = sampler.out();
  size_t share = sampler.share_of(c);
  const hvd::Reduction sum{.dtype = hvd::DType::f32};
  const hvd::Segments whole(reinterpret_cast<std::byte*>(in), c.bytes);
  const auto sent = split(in, share, size), received = split(out, share, size);
  auto measure = [&](const float* result, auto&& operation) {
    // A rank that posted last owes its peers a bell if they sleep; it rings when it waits next, or leaves.
    auto pause = [&] {
      transport.leave();
      transport.enter();
    };
    auto checked = [&] { expect(operation()); };
    sampler.measure(c, result, checked, pause);
  };
  switch (c.collective) {
    case Collective::burst:  // what a burst is compared with: its bytes at once
    case Collective::allreduce: measure(in, [&] { return collectives.allreduce(whole, whole, sum); }); return;
    case Collective::broadcast: measure(in, [&] { return collectives.broadcast(0, whole); }); return;
    case Collective::allgather: measure(out, [&] { return collectives.allgather(sent[0], received); }); return;
    case Collective::alltoall:
      measure(out, [&] { return collectives.alltoall(sent, received, share * sizeof(float)); });
      return;
    case Collective::reducescatter:
      measure(out, [&] { return collectives.reducescatter(sent, received[0], sum); });
      return;
    case Collective::barrier: measure(in, [&] { return collectives.barrier(); }); return;
    case Collective::async:
    case Collective::idle: bench::fail("not a collective of this layer");
  }
}

}  // namespace

int main(int argc, char** argv) {
  int size = argc > 1 ? std::atoi(argv[1]) : 0;
  std::vector<hvd::HostGroup> groups = take(hvd::make_local_groups(size));
  return bench::fork_ranks(size, [&](int rank) {
    bench::Team team(rank, size);
    team.pin();
    auto transport = take(hvd::Transport::create(std::move(groups[static_cast<size_t>(rank)]), settings_for(team)));
    std::vector<int32_t> ranks;
    for (int32_t r = 0; r < size; r++) ranks.push_back(r);
    hvd::Channel* channel = take(transport->open_channel(0, ranks));
    transport->enter();
    hvd::HostCollectives collectives(*channel, static_cast<size_t>(hvd::Tuning{}.one_shot_limit));
    bench::Sampler sampler(team, argc, argv);
    for (const Case& c : sampler.cases()) measure_case(sampler, c, collectives, *transport);
    team.barrier();
  });
}
