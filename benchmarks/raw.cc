// Our collectives without names, negotiation or handles: what the engine would reach if deciding cost nothing. Forks
// ranks that share memory, or is one rank of a world that spans hosts, as HOROVOD_* variables describe it.
#include <cerrno>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/host_collectives.h"
#include "collectives/world_collectives.h"
#include "model/config.h"
#include "model/plan.h"
#include "rendezvous/store_server.h"
#include "rendezvous/world.h"
#include "rendezvous/world_meeting.h"
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
  settings.crowded = team.crowded();
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

void measure_case(bench::Sampler& sampler, const Case& c, hvd::Collectives& collectives, hvd::Transport& transport) {
  int size = collectives.size();
  float *in = sampler.in(), *out = sampler.out();
  size_t share = sampler.share_of(c);
  const hvd::Reduction sum{.dtype = hvd::DType::f32};
  const hvd::Segments whole(reinterpret_cast<std::byte*>(in), c.bytes);
  const auto sent = split(in, share, size), received = split(out, share, size);
  auto measure = [&](const float* result, auto&& operation) {
    // A rank that posted last owes its peers a bell if they sleep; it rings when it waits next, or leaves.
    auto pause = [&] {
      transport.waiter().leave();
      transport.waiter().enter();
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

std::vector<int32_t> first_ranks(int32_t count) {
  std::vector<int32_t> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void measure(bench::Team& team, hvd::Collectives& collectives, hvd::Transport& transport, int argc, char** argv) {
  transport.waiter().enter();
  bench::Sampler sampler(team, argc, argv);
  for (const Case& c : sampler.cases()) measure_case(sampler, c, collectives, transport);
  team.barrier();
}

void run_in_memory(bench::Team& team, hvd::HostGroup group, int argc, char** argv) {
  auto transport = take(hvd::Transport::create(std::move(group), settings_for(team)));
  hvd::Channel* channel = take(transport->channels().open(0, first_ranks(transport->size())));
  hvd::HostCollectives collectives(*channel, static_cast<size_t>(hvd::Tuning{}.one_shot_limit));
  measure(team, collectives, *transport, argc, argv);
}

void run_between_hosts(bench::Team& team, int argc, char** argv) {
  hvd::Config config = take(hvd::config_from_environment());
  hvd::World world = take(hvd::world_from_config(config, hvd::Generation{0}));
  hvd::UniqueFd memory;
  if (world.local_rank == 0) memory = take(hvd::create_shared_memory(hvd::ControlBlock::bytes(world.local_size)));
  hvd::WorldGroup group = take(hvd::form_world(world, config, std::move(memory)));
  auto transport = take(hvd::Transport::create(std::move(group.host), settings_for(team)));
  auto mesh = take(hvd::Mesh::create([](int32_t, const hvd::Status& status) { expect(status); },
                                     {.stripes = {}, .all_stripes = config.tcp_streams > 0}));
  for (auto& [peer, streams] : group.streams) mesh->add(peer, std::move(streams));
  mesh->set_dialer(std::move(group.dialer));
  expect(transport->attach(std::move(mesh)));
  hvd::Channel* channel = take(transport->channels().open(0, first_ranks(transport->size())));
  hvd::Placement placement = hvd::place(first_ranks(world.size), group.host_of_rank, world.rank);
  hvd::WorldCollectives collectives(*transport, *channel, placement, {});
  measure(team, collectives, *transport, argc, argv);
  transport->peers().say_goodbye();
}

}  // namespace

int main(int argc, char** argv) {
  int size = argc > 1 ? std::atoi(argv[1]) : 0;
  if (bench::launched()) {
    return bench::run_ranks(size, [&](int rank) {
      bench::Team team(rank, size);
      team.pin();
      run_between_hosts(team, argc, argv);
    });
  }
  std::vector<hvd::HostGroup> groups = take(hvd::make_local_groups(size));
  return bench::fork_ranks(size, [&](int rank) {
    bench::Team team(rank, size);
    team.pin();
    run_in_memory(team, std::move(groups[static_cast<size_t>(rank)]), argc, argv);
  });
}
